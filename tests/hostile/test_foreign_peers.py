"""Peers that are not fastsock: they get kernel TCP, the same bytes, and share listeners with those that are."""

import http.client
import socket
import subprocess
import time

import pytest
from harness.pairs import SECONDS, Task, listening, payload, read_exactly
from harness.processes import running

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

FILE = payload(300_000, seed=7)
SERVER = """
    import http.server
    fastsock.patch(move_after=0)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *args):
            pass
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Path", path_of(self.request))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    say(server.server_address[1])
    server.serve_forever()
"""


class FastClient(http.client.HTTPConnection):
    """The stdlib's client as it is under patch()."""

    def connect(self) -> None:
        self.sock = fastsock.socket()
        self.sock.settimeout(SECONDS)
        self.sock.connect((self.host, self.port))


def test_both_kinds_of_client_at_once() -> None:
    """On one listener: each gets the same bytes, one kind by the ring, the other by the kernel."""

    def use(kind: type[http.client.HTTPConnection]) -> tuple[str | None, str]:
        client = kind("127.0.0.1", port, timeout=SECONDS)

        def asked() -> tuple[str | None, str]:
            client.request("POST", "/", body=FILE)
            answer = client.getresponse()
            assert answer.read() == FILE
            return answer.getheader("Path"), fastsock.path_of(client.sock).path

        paths, limit = [asked() for _ in range(30)][-1], time.monotonic() + SECONDS / 2
        while kind is FastClient and paths != ("ring", "ring") and time.monotonic() < limit:
            paths = asked()
        client.close()
        return paths

    with running(SERVER) as server, fastsock.configure(move_after=0):
        port = int(server.line())
        tasks = [Task(use, kind) for kind in [FastClient, http.client.HTTPConnection] * 4]
        assert [task.result() for task in tasks] == [("ring", "ring"), ("tcp", "tcp")] * 4


def test_fastsock_client_of_a_c_peer_that_takes_the_descriptor() -> None:
    """The accepted descriptor is given to a process that knows nothing of fastsock."""
    with fastsock.configure(move_after=0), listening() as listener, fastsock.socket() as near:
        near.connect(listener.getsockname())
        with listener.accept()[0] as far, subprocess.Popen(["cat"], stdin=far.fileno(), stdout=far.fileno()) as cat:
            far.close()
            for number in range(60):
                near.sendall(payload(100, number))
                assert read_exactly(near, 100) == payload(100, number)
            assert fastsock.path_of(near).path == "tcp"
            near.shutdown(socket.SHUT_WR)
            assert near.recv(1) == b""
            assert cat.wait(SECONDS) == 0
