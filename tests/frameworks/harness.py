"""Server and client programs as processes, plain or under fastsock."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

APPS = Path(__file__).parent / "apps"
DEADLINE = 25
"""Seconds that any step of any process may take."""

URL = re.compile(rb"(https?)://127\.0\.0\.1:(\d+)")


def command(way: str, stats: Path | None, words: tuple[object, ...]) -> list[str]:
    """The command line of a program, `words` after `python`, for a way to start it: plain or fastsock."""
    runner: tuple[object, ...] = ()
    if way == "fastsock":
        runner = ("-m", "fastsock", "run", *(("--stats", stats) if stats else ()))
    return [sys.executable, *map(str, (*runner, *words))]


def environment(**variables: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    return {**own, "PYTHONPATH": str(APPS), "PYTHONUNBUFFERED": "1", "FASTSOCK_MOVE_POLLED": "1", **variables}


def free_port() -> tuple[int, socket.socket]:
    """A port for a server that must be told one and binds it with SO_REUSEPORT; the socket keeps it from others."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1], holder


class Server:
    """A running server. It has said which port it listens on, and accepts."""

    def __init__(
        self, way: str, *words: object, stats: Path | None = None, port: int | None = None, **variables: str
    ) -> None:
        self.way = way
        self.stats = stats
        self.said = b""
        self.process = subprocess.Popen(
            command(way, stats, words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(**variables),
            start_new_session=True,
        )
        try:
            scheme = "http"
            if port is None:
                said = self.wait_for(URL)
                scheme, port = said[1].decode(), int(said[2])
            self.port = port
            self.url = f"{scheme}://127.0.0.1:{port}"
            self.until(self.accepts, "accept")
        except BaseException:
            self.kill()
            raise

    def wait_for(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        """What the server says, until it fits `pattern`."""
        limit = time.monotonic() + DEADLINE
        assert self.process.stdout is not None
        while not (match := pattern.search(self.said)):
            ready = select.select([self.process.stdout], [], [], max(limit - time.monotonic(), 0))[0]
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert piece, f"the server did not say {pattern.pattern!r}:\n{self.said.decode()}"
            self.said += piece
        return match

    def until(self, look: Any, what: str) -> Any:
        limit = time.monotonic() + DEADLINE
        while not (value := look()):
            assert self.process.poll() is None, self.rest()
            assert time.monotonic() < limit, f"the server does not {what}: {self.said.decode()}"
            time.sleep(0.005)
        return value

    def accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def curl(self, path: str = "/about", *options: str) -> Any:
        """What a foreign client gets."""
        done = subprocess.run(
            ["curl", "-sS", "--max-time", str(DEADLINE), *options, self.url + path],
            capture_output=True,
            check=False,
            timeout=2 * DEADLINE,
        )
        assert done.returncode == 0, done.stderr.decode() + self.said.decode()
        return done.stdout

    def about(self) -> Any:
        return json.loads(self.curl())

    def rest(self) -> str:
        """All it said, when it has ended."""
        assert self.process.stdout is not None
        output, _ = self.process.communicate(timeout=DEADLINE)
        self.said += output or b""
        return self.said.decode()

    def end(self, with_signal: int = signal.SIGINT) -> tuple[int, str]:
        """Asks it to end; gives its exit status and all it said."""
        self.process.send_signal(with_signal)
        said = self.rest()
        return self.process.returncode, said

    def statistics(self) -> Any:
        """What `--stats` wrote when it ended."""
        assert self.stats is not None
        return json.loads(self.stats.read_text())

    def kill(self) -> None:
        # Its workers are in its session and outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@contextlib.contextmanager
def serving(way: str, *words: object, **options: Any) -> Iterator[Server]:
    """A `Server`, killed on leaving."""
    server = Server(way, *words, **options)
    try:
        yield server
    finally:
        server.kill()


def run(way: str, *words: object, **variables: str) -> Any:
    """Runs a program to its end: the line of JSON that it printed."""
    done = subprocess.run(
        command(way, None, words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=2 * DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)
