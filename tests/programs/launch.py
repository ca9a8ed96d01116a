"""Real processes for the tests of this package: started plain or under `fastsock run`, told to end, and looked at.

Programs run with the default settings. Servers print to a file that the test waits on; clients run to their end and
print one line of JSON (scripts/report.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
DEADLINE = 30
"""Seconds that any one process may take to start, to run to its end, or to stop."""

PLAIN, FASTSOCK, NATIVE = "plain", "fastsock", "native"
WAYS = [(PLAIN, PLAIN), (FASTSOCK, FASTSOCK), (FASTSOCK, PLAIN), (PLAIN, FASTSOCK)]
"""How the server and the client are started; the first is what the others have to equal."""

UNPAID = "moves have not paid here"
FOREIGN = {"too few operations", UNPAID, "looking for the peer", "peer does not use fastsock"}
"""Why a connection to a process without fastsock is on kernel TCP, by how long it lived."""


def command(way: str, *words: object, stats: Path | None = None) -> list[str]:
    """``python WORDS``, ``fastsock run WORDS``, or WORDS as they are."""
    if way == NATIVE:
        return [str(word) for word in words]
    runner = ["-m", "fastsock", "run"] if way == FASTSOCK else []
    if runner and stats is not None:
        runner += ["--stats", stats]
    return [str(word) for word in (sys.executable, *runner, *words)]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with the scripts importable, no proxy, and one setting: what polls moves too."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    mine = {name: value for name, value in mine.items() if not name.lower().endswith("_proxy")}
    return {**mine, "PYTHONPATH": str(SCRIPTS), "PYTHONUNBUFFERED": "1", "FASTSOCK_MOVE_POLLED": "1", **variables}


def run(way: str, *words: object, **variables: str) -> str:
    """What a program prints that runs to its end, successfully and without a word on stderr."""
    ended = subprocess.run(
        command(way, *words),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def report(way: str, script: str, *words: object) -> dict[str, Any]:
    """The report of a client script: exercise -> answers, connections and paths."""
    found: dict[str, Any] = json.loads(run(way, SCRIPTS / script, *words))
    return found


def until_moved(look: Callable[[], dict[str, Any]], got: dict[str, Any], ring: int) -> dict[str, Any]:
    """Of a client and a server under fastsock: what the client reports, `got` or of a later run. On a busy machine a
    conversation may be over before its connection has moved. (Or the ends have learned that none of these pays.)"""
    limit = time.monotonic() + DEADLINE
    while got["paths"]["ring"] < ring and UNPAID not in got["paths"]["tcp"] and time.monotonic() < limit:
        got = look()
    return got


class Server:
    """A started server: its output so far, its port, its end."""

    def __init__(self, way: str, directory: Path, name: str, *words: object, **variables: str) -> None:
        self.output = directory / f"{name}-{way}.out"
        self.stats_file = directory / f"{name}-{way}.json"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command(way, *words, stats=self.stats_file),
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Waits until the output so far has a match, or so many, and returns the last."""

        def look() -> list[re.Match[str]]:
            found = list(re.finditer(pattern, self.output.read_text()))
            assert self.process.poll() is None or len(found) >= times, self.output.read_text()
            return found if len(found) >= times else []

        limit = time.monotonic() + DEADLINE
        while not (found := look()):
            assert time.monotonic() < limit, f"the server does not say {pattern}: {self.output.read_text()}"
            time.sleep(0.005)
        return found[-1]

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that the server says it listens on."""
        return int(self.said(r"(?:port|127\.0\.0\.1:)\s*(\d+)")[1])

    def end(self, number: int = signal.SIGTERM) -> str:
        """Asks the server to end, as one does, and returns what it had printed; it must exit with 0."""
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE)
        output = self.output.read_text()
        assert status == 0, output
        assert "Traceback" not in output, output
        return output

    def stats(self) -> dict[str, Any]:
        """``fastsock.stats()`` of the ended process."""
        found: dict[str, Any] = json.loads(self.stats_file.read_text())
        return found

    def kill(self) -> None:
        """SIGKILL to it and to the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)


@contextlib.contextmanager
def serving(way: str, directory: Path, name: str, *words: object, **variables: str) -> Iterator[Server]:
    """A `Server`, killed on leaving with all that it started."""
    server = Server(way, directory, name, *words, **variables)
    try:
        yield server
    finally:
        server.kill()


def check_paths(paths: dict[str, Any] | None, server_way: str, client_way: str, ring: int, *also: str) -> None:
    """What a client counted: at least `ring` connections on the ring if both ends are fastsock's, else none and why:
    as FOREIGN says, or for one of the reasons `also`."""
    if client_way == PLAIN:
        assert paths is None
    elif server_way == PLAIN:
        assert paths["ring"] == 0
        assert paths["tcp"]
        assert set(paths["tcp"]) <= {*FOREIGN, *also}
    else:
        assert paths["ring"] >= ring, paths
