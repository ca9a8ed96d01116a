"""Servers that restart their workers: sockets passed to new processes, and no request lost."""

import http.client
import os
import signal

import pytest
from pairs import SECONDS, Task, until

import fastsock
from programs.launch import FASTSOCK, PLAIN, SCRIPTS, serving

WAY = pytest.mark.parametrize("way", [PLAIN, FASTSOCK])


class Client(http.client.HTTPConnection):
    """The stdlib's client, as it is under patch()."""

    def connect(self) -> None:
        self.sock = fastsock.socket()
        self.sock.settimeout(SECONDS)
        self.sock.connect((self.host, self.port))

    def get(self, path: str = "/") -> str:
        self.request("GET", path)
        return self.getresponse().read().decode()


def keep_using(client: Client, way: str) -> str:
    """Requests until the connection has moved, if it can; the worker's answer."""
    for _ in range(30):
        answer = client.get()
    if way == FASTSOCK:
        until(lambda: client.get() == answer and fastsock.path_of(client.sock).path == "ring", "it moves")
    else:
        assert fastsock.path_of(client.sock).path == "tcp"
    return answer


@WAY
@pytest.mark.parametrize("worker", ["sync", "gthread"])
def test_gunicorn(way, worker, tmp_path):
    """HUP replaces the workers and TERM ends them: a request under way gets its answer, the listener stays."""
    words = ["--bind", "127.0.0.1:0", "--chdir", SCRIPTS, "--worker-class", worker, "--keep-alive", "60"]
    if worker == "gthread":
        words += ["--threads", "4"]
    with serving(way, tmp_path, worker, "-m", "gunicorn", *words, "waiting:app", DIRECTORY=str(tmp_path)) as server:
        port = server.port
        server.said("Booting worker")
        for number, told in enumerate((signal.SIGHUP, signal.SIGTERM)):
            idle, busy = Client("127.0.0.1", port), Client("127.0.0.1", port)
            worker_before = keep_using(idle, way) if worker == "gthread" else idle.get()
            waits = Task(busy.get, "/wait")
            until((tmp_path / "waiting").exists, "the request is under way")
            os.kill(server.process.pid, told)
            server.said("Hang up|Handling signal: (hup|term)", number + 1)
            (tmp_path / "go").touch()
            assert waits.result() == worker_before
            for client in (idle, busy):
                client.close()
            if told == signal.SIGHUP:
                server.said("Booting worker", 2)

                def replaced(old=worker_before) -> bool:
                    client = Client("127.0.0.1", port)
                    try:
                        return client.get() != old
                    except (ConnectionError, http.client.HTTPException):
                        return False  # the old worker ended before it had accepted this one: as ever
                    finally:
                        client.close()

                until(replaced, "a new worker answers")
            for name in ("waiting", "go"):
                (tmp_path / name).unlink()
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.output.read_text()


@WAY
def test_werkzeug_reloads(way, tmp_path):
    """The reloader starts a new process, which takes over the listener's descriptor and is patched as well."""
    (tmp_path / "version.py").write_text("VERSION = 1")
    path = os.pathsep.join([str(tmp_path), str(SCRIPTS)])
    with serving(way, tmp_path, "reloaded", SCRIPTS / "reloaded.py", PYTHONPATH=path) as server:

        def get() -> str:
            client = Client("127.0.0.1", server.port)
            try:
                return client.get()
            finally:
                client.close()

        assert get() == f"1 {way == FASTSOCK}"
        (tmp_path / "version.py").write_text("VERSION = 2  # with another length")
        until(lambda: get() == f"2 {way == FASTSOCK}", "the new version answers")
        server.end()
