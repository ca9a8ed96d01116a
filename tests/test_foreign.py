"""Peers that are not fastsock: they get kernel TCP, the same bytes, and share listeners with those that are."""

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from pairs import SECONDS, KernelSocket, Task, deadline, payload, read_exactly, read_to_eof
from processes import running

import fastsock

FILE = payload(300_000, seed=7)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(50), fastsock.configure(move_after=0):
        yield


@pytest.fixture
def served(tmp_path):
    """The port of a patched http.server in another process, and the process."""
    (tmp_path / "file").write_bytes(FILE)
    source = """
    fastsock.patch()
    import functools, http.server

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *args):
            pass
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            stats = fastsock.stats()
            answer = f"{len(body)} {stats.connections_ring} {stats.connections_tcp} {path_of(self.request)}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    handler = functools.partial(Handler, directory=sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    say(server.server_address[1])
    server.serve_forever()
    """
    with running(source, tmp_path) as program:
        yield int(program.line())


class FastClient(http.client.HTTPConnection):
    """The stdlib's client as it is under patch()."""

    def connect(self) -> None:
        self.sock = fastsock.socket()
        self.sock.settimeout(SECONDS)
        self.sock.connect((self.host, self.port))


def fetch(client: http.client.HTTPConnection, times: int) -> str:
    """Gets the file several times on one connection; what the server says of the connection at the end."""
    for _ in range(times):
        client.request("GET", "/file")
        assert client.getresponse().read() == FILE
    client.request("POST", "/", body=bytes(70_000))
    answer = client.getresponse().read().decode()
    assert answer.startswith("70000 ")
    return answer


def test_both_kinds_of_client_at_once(served):
    """On one listener: each gets the same bytes, one kind by the ring, the other by the kernel."""

    def use(kind: type[http.client.HTTPConnection]) -> tuple[str, str]:
        client = kind("127.0.0.1", served, timeout=SECONDS)

        def asked(times: int) -> tuple[str, str]:
            answer = fetch(client, times)
            return answer.split()[-1], fastsock.path_of(client.sock).path

        paths, limit = asked(30), time.monotonic() + SECONDS / 2
        while kind is FastClient and paths != ("ring", "ring") and time.monotonic() < limit:
            paths = asked(1)
        client.close()
        return paths

    kinds = [FastClient, http.client.HTTPConnection] * 4
    tasks = [Task(use, kind) for kind in kinds]
    assert [task.result() for task in tasks] == [("ring", "ring"), ("tcp", "tcp")] * 4


def test_no_byte_of_ours_in_a_plain_peers_stream():
    """Whatever the facade does on its side, a raw reader sees what was sent and nothing else."""
    with fastsock.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with KernelSocket() as near:
            near.settimeout(SECONDS)
            near.connect(listener.getsockname())
            with listener.accept()[0] as far:
                far.settimeout(SECONDS)
                sent = b""
                for number in range(500):
                    piece = payload(number % 37 + 1, number)
                    far.sendall(piece)
                    far.fileno()
                    near.sendall(b"x")
                    assert far.recv(1) == b"x"
                    sent += piece
                far.shutdown(socket.SHUT_WR)
                assert read_to_eof(near) == sent


def test_fastsock_client_of_a_c_peer_that_takes_the_descriptor():
    """The accepted descriptor is given to a process that knows nothing of fastsock."""
    with fastsock.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with fastsock.socket() as near:
            near.settimeout(SECONDS)
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
