"""Servers of several processes: each worker gets its share, and its connections move; requests under way survive a
graceful stop, a restart and a reload."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from frameworks.harness import APPS, DEADLINE, Server, free_port, run, serving

CLIENT = APPS / "workers_client.py"
GUNICORN = ("-m", "gunicorn", "--bind", "127.0.0.1:0", "--worker-class", "uvicorn_worker.UvicornWorker", "asgi_app:app")
SERVERS: dict[str, tuple[object, ...]] = {
    "uvicorn": ("-m", "uvicorn", "--port", "0", "--workers", "2", "asgi_app:app"),
    "uvicorn on asyncio": ("-m", "uvicorn", "--port", "0", "--workers", "2", "--loop", "asyncio", "asgi_app:app"),
    "hypercorn": ("-m", "hypercorn", "--bind", "127.0.0.1:0", "--workers", "2", "asgi_app:app"),
    "gunicorn": (*GUNICORN, "--workers", "2"),
}


@contextlib.contextmanager
def started(way: str, name: str) -> Iterator[Server]:
    if name != "reuse_port":
        with serving(way, *SERVERS[name]) as server:
            yield server
        return
    port, holder = free_port()
    words = (APPS / "aiohttp_app.py", "--runner", "uvloop.run", "--reuse-port", "--port", port)
    with holder, serving(way, *words) as server, serving(way, *words):
        yield server


@pytest.mark.parametrize("name", [*SERVERS, "reuse_port"])
def test_each_worker_gets_its_share(name: str, tmp_path: Path) -> None:
    with started("fastsock", name) as server:
        workers = run("fastsock", CLIENT, "shares", server.url, tmp_path / "go on")
        assert len({worker["pid"] for worker in workers}) == 2, workers
        for worker in workers:
            assert worker["ring"] >= 1, workers
        if name != "uvicorn":
            return
        # A foreign client of the same workers.
        workers = run("plain", CLIENT, "shares", server.url, tmp_path / "go on again")
        assert len({worker["pid"] for worker in workers}) == 2, workers


@contextlib.contextmanager
def request_under_way(way: str, server: Server, file: Path) -> Iterator[Callable[[], Any]]:
    """A client whose request is being worked on; gives what lets it be answered and returns what the client says."""
    with ThreadPoolExecutor(1) as pool:
        client: Future[Any] = pool.submit(run, way, CLIENT, "waits", server.url, file)

        def go_on() -> Any:
            file.touch()
            return client.result(2 * DEADLINE)

        try:
            server.until(lambda: client.done() or file.with_suffix(".begun").exists(), "work on the request")
            yield go_on
        finally:
            file.touch()


@pytest.mark.parametrize("way", ["plain", "fastsock"])
@pytest.mark.parametrize("name", ["uvicorn", "gunicorn"])
def test_a_graceful_stop_answers_what_is_under_way(name: str, way: str, tmp_path: Path) -> None:
    with started(way, name) as server, request_under_way(way, server, tmp_path / "go on") as go_on:
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(re.compile(b"Shutting down"))
        answer = go_on()
        assert answer["pid"] != server.process.pid
        assert answer["ring"] == (None if way == "plain" else 1)
        assert "Traceback" not in server.rest()
        assert server.process.returncode == 0


@pytest.mark.parametrize("way", ["plain", "fastsock"])
def test_gunicorn_restarts_its_workers(way: str, tmp_path: Path) -> None:
    booting = re.compile(rb"Booting worker with pid: (\d+)")
    with serving(way, *GUNICORN, "--workers", "1") as server:
        old = server.about()["pid"]
        with request_under_way(way, server, tmp_path / "go on") as go_on:
            server.process.send_signal(signal.SIGHUP)
            server.wait_for(re.compile(booting.pattern + rb"(?s:.*)" + booting.pattern))
            new = server.until(lambda: answered_by_other(server, old), "have a new worker")["pid"]
            answer = go_on()
        assert answer == {"pid": old, "ring": None if way == "plain" else 1}
        again = run(way, CLIENT, "waits", server.url, tmp_path / "go on")  # the file is there
        assert again == {"pid": new, "ring": None if way == "plain" else 1}
        status, said = server.end(signal.SIGTERM)
        assert (status, "Traceback" in said) == (0, False), said


def answered_by_other(server: Server, old: int) -> Any:
    """What the server says when its process is no longer `old`."""
    try:
        about = server.about()
    except AssertionError:  # nobody listens while it restarts, or the old one accepts a last connection and closes it
        return None
    return about if about["pid"] != old else None


def test_uvicorn_reloads(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    module = app / "reloaded.py"
    module.write_text("import asgi_app\nasgi_app.VERSION = 1\napp = asgi_app.app\n")
    watching = ("--app-dir", app, "--reload", "--reload-dir", app, "--reload-delay", "0.05")
    with serving("fastsock", "-m", "uvicorn", "--port", "0", *watching, "reloaded:app") as server:
        first = server.about()
        assert first["version"] == 1
        (tmp_path / "go on").touch()
        assert run("fastsock", CLIENT, "waits", server.url, tmp_path / "go on") == {"pid": first["pid"], "ring": 1}
        module.write_text(module.read_text().replace("= 1", "= 2222"))
        second = server.until(lambda: answered_by_other(server, first["pid"]), "reload")
        assert second["version"] == 2222
        assert run("fastsock", CLIENT, "waits", server.url, tmp_path / "go on") == {"pid": second["pid"], "ring": 1}
        status, said = server.end()
        assert (status, "Traceback" in said) == (0, False), said
