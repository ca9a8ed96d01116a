"""Other languages and other people's servers, from table.py: the same answers and the same end on every path,
connections that move (or the reason why not), nothing that spins, nothing that is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.pairs import SECONDS
from harness.processes import FASTSOCK, PLAIN, Process, Server, ended, environment, marked, port_for_later

from ..programs.native import under
from .table import RUNTIMES, Runtime

HERE = Path(__file__).parent / "scripts"
EAGER = {"FASTSOCK_MOVE_AFTER": "0"}
PATHS = [
    (PLAIN, PLAIN, {}), (FASTSOCK, FASTSOCK, {}), (FASTSOCK, FASTSOCK, EAGER), (FASTSOCK, PLAIN, EAGER),
    (PLAIN, FASTSOCK, EAGER),
]  # fmt: skip
"""How servers and client are started; the first is what the others have to equal."""
MARK = "RUNTIME_OF_THE_TEST"
TRIES = 5
REST = 0.15
"""Processes that rest use less of the processor in a second than this, in one of TRIES."""


@dataclass
class Told:
    output: str
    errors: str
    status: int
    servers: list[int]
    """How they ended."""
    ring: int
    reasons: set[str]
    busiest: float
    """Seconds of the processor in the quietest of some idle seconds."""

    def seen(self) -> tuple[str, str, int, list[int]]:
        return self.output, self.errors, self.status, self.servers


def processor(pids: list[int]) -> float:
    """Seconds that these processes have used."""
    used = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            used += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return used / os.sysconf("SC_CLK_TCK")


def idle_second(mark: str) -> float:
    """What the processes use of the processor in the quietest of some seconds."""
    quietest = float("inf")
    for _ in range(TRIES):
        before = processor(pids := marked(MARK, mark))
        time.sleep(1)
        quietest = min(quietest, processor(pids) - before)
        if quietest < REST:
            break
    return quietest


class Walk:
    """A runtime in a folder, started once on each path."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime, self.folder = runtime, folder
        if runtime.prepare:
            ended(self.words(runtime.prepare, {}), cwd=folder)

    def words(self, words: str, ports: dict[str, int]) -> list[str]:
        found = [word.format(here=HERE, folder=self.folder, **ports) for word in words.split()]
        return [sys.executable, *found] if found[0].endswith(".py") else found

    def lay(self, ports: dict[str, int]) -> None:
        """The files that programs are told of."""
        for name in ("html", "served"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        (self.folder / "html/page").write_bytes(b"page\n" * 100)
        (self.folder / "html/large").write_bytes(b"0123456789" * 300_000)
        for name, text in self.runtime.files.items():
            (self.folder / name).write_text(text.format(here=HERE, folder=self.folder, **ports))

    @contextlib.contextmanager
    def servers(self, way: str, ports: dict[str, int], variables: dict[str, str]) -> Iterator[list[Server]]:
        started: list[Server] = []
        with contextlib.ExitStack() as stack:
            for number in reversed(range(len(self.runtime.servers))):
                stats = self.folder / f"server-{number}.json"
                stats.unlink(missing_ok=True)
                words = under(way, self.words(self.runtime.servers[number], ports), stats)
                server = stack.enter_context(Server(words, self.folder, stats, **variables))
                started.insert(0, server)
                server.listens(list(ports.values())[number])
            yield started

    def client(
        self, way: str, ports: dict[str, int], mark: str, variables: dict[str, str]
    ) -> tuple[str, str, int, float]:
        """What it says on each stream, its status, and the idle second."""
        stats, busiest = self.folder / "client.json", 0.0
        stats.unlink(missing_ok=True)
        with (self.folder / "errors").open("w+") as errors:
            words = self.words(self.runtime.client, ports)
            if words[0] == "sh":
                variables = {**variables, "COUNTED": " ".join(under(way, [], stats))}
                words = under(way, words)
            else:
                words = under(way, words, stats)
            with Process(words, stderr=errors, cwd=self.folder, env=environment(**variables)) as client:
                assert client.process.stdin
                assert client.process.stdout
                said, at_rest, limit = b"", False, time.monotonic() + 4 * SECONDS
                client.process.stdin.write(self.runtime.given.encode())
                while True:
                    ready = select.select([client.process.stdout], [], [], limit - time.monotonic())[0]
                    assert ready, f"it says no more than {said.decode()[-500:]}"
                    if not (more := os.read(client.process.stdout.fileno(), 1 << 16)):
                        break
                    said += more
                    if not at_rest and b"\nidle" in b"\n" + said:
                        at_rest, busiest = True, idle_second(mark)
                        client.process.stdin.write(b"select 1;\n")
                        client.process.stdin.close()
                status = client.wait()
            errors.seek(0)
            return said.decode(), errors.read(), status, busiest

    def run(self, server_way: str, client_way: str, settings: dict[str, str]) -> Told:
        mark = str(uuid.uuid4())
        variables = {MARK: mark, **self.runtime.settings, **settings}
        ports = {name: port_for_later() for name in "abc"}
        self.lay(ports)
        with self.servers(server_way, ports, variables) as servers:
            output, errors, status, busiest = self.client(client_way, ports, mark, variables)
            ends = []
            for server in servers:
                assert server.process.poll() is None, server.text()
                server.process.send_signal(self.runtime.ends)
                ends.append(server.wait())
                assert "fastsock" not in server.text().replace(str(self.folder), "")
            limit = time.monotonic() + SECONDS
            while left := marked(MARK, mark):
                assert time.monotonic() < limit, f"left: {[Path(f'/proc/{pid}/cmdline').read_text() for pid in left]}"
                time.sleep(0.05)
        stats = [
            json.loads(path.read_text())
            for path in self.folder.glob("*.json")
            if path.name.startswith(("server-", "client"))
        ]
        ring = sum(one["connections_ring"] for one in stats)
        reasons = {reason for one in stats for reason in one["fallback_reasons"]}
        return Told(output, errors, status, ends, ring, reasons, busiest)


def cases() -> Iterator[object]:
    for name, runtime in RUNTIMES.items():
        missing = [program for program in runtime.needs.split() if not shutil.which(program)]
        marks = [pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")]
        yield pytest.param(runtime, marks=marks, id=name)


@pytest.mark.parametrize("runtime", [*cases()])
def test_the_same_on_every_path(runtime: Runtime, tmp_path: Path) -> None:
    walk, expected = Walk(runtime, tmp_path), None
    for server_way, client_way, settings in PATHS:
        both = server_way == client_way == FASTSOCK
        for _ in range(3 if both and not runtime.stays else 1):  # on a busy machine a session may be over too soon
            told = walk.run(server_way, client_way, settings)
            expected = expected or told
            assert told.seen() == expected.seen(), (server_way, client_way, settings)
            assert told.busiest < max(REST, 2 * expected.busiest), (server_way, client_way, settings)
            if told.ring:
                break
        if both and not runtime.stays:
            assert told.ring > 0, told
        else:
            assert told.ring == 0, told
            assert not both or runtime.stays in told.reasons, told
    assert expected
    assert expected.status == 0, expected
