"""Servers of several processes: each worker gets its share, a restart or an end loses no request, and what a reloader
starts is patched too."""

import contextlib
import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.pairs import SECONDS, Task, until
from harness.processes import FASTSOCK, PLAIN, Server, command, port_for_later

import fastsock

SCRIPTS = Path(__file__).parent / "scripts"
WAY = pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
GUNICORN = ("-m", "gunicorn", "--bind", "127.0.0.1:0", "--keep-alive", "60", "--worker-class")
UVICORN = ("-m", "uvicorn", "--port", "0")
SERVERS = {
    "gunicorn sync": (*GUNICORN, "sync", "pages:wsgi"),
    "gunicorn gthread": (*GUNICORN, "gthread", "--threads", "4", "pages:wsgi"),
    "gunicorn uvicorn": (*GUNICORN, "uvicorn_worker.UvicornWorker", "pages:asgi"),
    "uvicorn": (*UVICORN, "pages:asgi"),
    "uvicorn asyncio": (*UVICORN, "--loop", "asyncio", "pages:asgi"),
    "hypercorn": ("-m", "hypercorn", "--bind", "127.0.0.1:0", "pages:asgi"),
    "reuse_port": (SCRIPTS / "http_servers.py", "aiohttp", "uvloop"),
}


class Client(http.client.HTTPConnection):
    """The stdlib's client, as it is under patch()."""

    def connect(self) -> None:
        self.sock = fastsock.socket()
        self.sock.settimeout(SECONDS)
        self.sock.connect((self.host, self.port))

    def get(self, path: str = "/about") -> list[object]:
        """Which process answers, the version of its pages, and whether it is patched."""
        self.request("GET", path)
        return json.loads(self.getresponse().read())

    def keep_using(self, way: str) -> list[object]:
        """Requests until the connection has moved, if it can."""
        for _ in range(30):
            answer = self.get()
        if way == FASTSOCK:
            until(lambda: self.get() == answer and fastsock.path_of(self.sock).path == "ring", "it moves")
        else:
            assert fastsock.path_of(self.sock).path == "tcp"
        return answer


def asked_once(port: int) -> list[object]:
    """What a new client hears; nothing where the process that has accepted it ends, as ever."""
    client = Client("127.0.0.1", port)
    try:
        return client.get()
    except (OSError, http.client.HTTPException):
        return []
    finally:
        client.close()


@contextlib.contextmanager
def started(way: str, directory: Path, *words: object) -> Iterator[Server]:
    """A server that answers. (uvicorn tells its port before its workers listen.)"""
    variables = {"PYTHONPATH": os.pathsep.join([str(directory), str(SCRIPTS)]), "DIRECTORY": str(directory)}
    with Server(command(way, *words), directory, **variables) as server:
        server.until(lambda: asked_once(server.port), "it answers")
        yield server


@pytest.mark.parametrize("name", ["gunicorn uvicorn", "uvicorn", "uvicorn asyncio", "hypercorn", "reuse_port"])
def test_each_worker_gets_its_share(name, tmp_path):
    words = (*SERVERS[name], port_for_later()) if name == "reuse_port" else (*SERVERS[name], "--workers", "2")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(started(FASTSOCK, tmp_path, *words))
        if name == "reuse_port":
            variables = {"PYTHONPATH": str(SCRIPTS), "DIRECTORY": str(tmp_path)}
            stack.enter_context(Server(server.process.args, **variables)).said("port")
        clients = [stack.enter_context(contextlib.closing(Client("127.0.0.1", server.port))) for _ in range(17)]
        first, *others = clients
        here = first.get()
        blocked = Task(first.get, "/blocks")
        until((tmp_path / "waiting").exists, "its worker is busy")
        # With SO_REUSEPORT the kernel chooses the worker, be it the blocked one: one of many gets to the other.
        asked = {Task(other.get): other for other in others}
        second = until(lambda: [asked[task] for task in asked if not task.is_alive()], "another answers")[0]
        (tmp_path / "go").touch()
        assert blocked.result() == here
        assert len([task.result() for task in asked]) == 16
        assert first.keep_using(FASTSOCK) == here
        assert second.keep_using(FASTSOCK)[0] != here[0]


@WAY
@pytest.mark.parametrize("name", ["gunicorn sync", "gunicorn gthread", "gunicorn uvicorn", "uvicorn"])
def test_no_request_is_lost(name, way, tmp_path):
    """HUP replaces gunicorn's workers and TERM ends them: a request under way is answered, the listener stays."""
    words = () if "gunicorn" in name else ("--workers", "2")
    with started(way, tmp_path, *SERVERS[name], *words) as server:
        for number, told in enumerate((signal.SIGHUP, signal.SIGTERM) if "gunicorn" in name else (signal.SIGTERM,), 1):
            idle, busy = Client("127.0.0.1", server.port), Client("127.0.0.1", server.port)
            if name == "gunicorn sync":
                before = idle.get()
            else:
                idle.keep_using(way)
                before = busy.keep_using(way)
            assert before[0] != server.pid
            waits = Task(busy.get, "/waits")
            until((tmp_path / "waiting").exists, "the request is under way")
            server.process.send_signal(told)
            server.said("Hang up|Handling signal: (hup|term)|Shutting down", number)
            (tmp_path / "go").touch()
            assert waits.result() == before
            for client in (idle, busy):
                client.close()
            if told == signal.SIGHUP:
                server.said("Booting worker", 2)
                until(lambda old=before: asked_once(server.port) not in ([], old), "a new worker answers")
            for file in ("waiting", "go"):
                (tmp_path / file).unlink()
        assert server.wait() == 0
        assert "Traceback" not in server.text()


@WAY
@pytest.mark.parametrize("name", ["werkzeug", "uvicorn"])
def test_reloads(name, way, tmp_path):
    """The reloader starts a new process, which takes over the listener's descriptor."""
    (tmp_path / "version.py").write_text("VERSION = 1")
    (tmp_path / "reloaded.py").write_text("import pages, version\npages.VERSION = version.VERSION\nasgi = pages.asgi")
    watching = ("--app-dir", tmp_path, "--reload", "--reload-dir", tmp_path, "--reload-delay", "0.05")
    words = (*UVICORN, *watching, "reloaded:asgi") if name == "uvicorn" else (SCRIPTS / "http_servers.py", "reloading")
    with started(way, tmp_path, *words) as server:
        for version in (1, 22):
            if version > 1:
                (tmp_path / "version.py").write_text(f"VERSION = {version}")
            expected = [version, way == FASTSOCK]
            until(lambda expected=expected: asked_once(server.port)[1:] == expected, "the version answers")
            if name == "uvicorn":
                client = Client("127.0.0.1", server.port)
                client.keep_using(way)
                client.close()
        server.end(signal.SIGINT if name == "uvicorn" else signal.SIGTERM)
