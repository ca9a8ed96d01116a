"""A pair of programs: servers and the client that drives them, plain or under fastsock."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import attrs

from bench.placement import placed
from bench.process import DrivenProcess, RunFailed
from bench.programs import processes
from bench.programs.calls import Calls, counting
from bench.programs.plan import Plan
from bench.programs.rows import End, Row

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PLAIN, FASTSOCK, AGAIN = "plain", "fastsock", "plain again"
KINDS = (PLAIN, FASTSOCK, AGAIN)
"""The last is the null test's."""

PATIENCE = 15.0
"""Seconds that a program may take to end."""

PDEATHSIG = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
"""No program outlives the harness."""

LAST_LINES = 60


@attrs.frozen
class Slice:
    operations: int
    seconds: float
    server_cpu: float
    client_cpu: float
    system_cpu: float = 0.0
    """Seconds that both ends spent in the kernel, of the CPU time above; counted in clock ticks (usually 10 ms)."""

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    @property
    def cpu(self) -> float:
        return self.server_cpu + self.client_cpu


def free_port() -> int:
    """A port below those that the kernel gives to connections, so that none of them takes it meanwhile."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, max(lowest, 11_000))
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def environment(inherited: Mapping[str, str], fastsock: bool) -> dict[str, str]:
    """The scripts importable, no proxy, Python's stack traces on SIGABRT; fastsock's settings where it is used only."""
    kept = {name: value for name, value in inherited.items() if not name.lower().endswith("_proxy")}
    if not fastsock:
        kept = {name: value for name, value in kept.items() if not name.startswith("FASTSOCK_")}
    path = os.pathsep.join([str(SCRIPTS), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}


@contextlib.contextmanager
def confined(cpus: tuple[int, ...] | None) -> Iterator[None]:
    """Processes started meanwhile run on those CPUs only."""
    allowed = os.sched_getaffinity(0)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class Pair:
    """Started by `start()`, driven by `slice()`; a context manager that leaves no process behind."""

    def __init__(self, row: Row, kind: str, placement: str, plan: Plan, directory: Path) -> None:
        self.row, self.kind, self.placement, self.plan = row, kind, placement, plan
        self.scratch = directory / kind.replace(" ", "-")
        self.scratch.mkdir(parents=True)
        self.ports = {"port": free_port(), "inner": free_port()}
        self.servers: list[subprocess.Popen[bytes]] = []
        self.client: DrivenProcess | None = None
        self.statuses: list[int] = []
        """Of the ended client, and of the servers from the last to the first; negative for a signal."""

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # ---- the start ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the client is ready. RunFailed when an end is not in time, or has ended."""
        deadline = monotonic() + self.row.ready_seconds
        for number, end in enumerate(self.row.servers):
            with self._log(number).open("wb") as log, confined(self._cpus(end.second)):
                command, how = self._command(end, f"server{number}"), self._how(end)
                streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                self.servers.append(subprocess.Popen(command, **streams, **how))
            if listens := end.listens or ("" if number else "port"):
                self._until_listening(number, listens, deadline)
        with confined(self._cpus(True)):
            end = self.row.client
            self.client = DrivenProcess("client", self._command(end, "client"), **self._how(end))
        self._hear(deadline - monotonic())

    def _values(self) -> dict[str, Any]:
        return {**self.ports, "scripts": SCRIPTS, "scratch": self.scratch, **self.plan.sizes}

    def _command(self, end: End, name: str) -> list[str]:
        words = [word.format(**self._values()) for word in end.words]
        if words[0].endswith(".py"):
            words[0] = str(SCRIPTS / words[0])
        if self._under_fastsock(end):
            words = ["-m", "fastsock", "run", "--stats", str(self.scratch / f"{name}.json"), *words]
        elif end.native:
            return [*PDEATHSIG, *words]
        return [*PDEATHSIG, sys.executable, *words]

    def _under_fastsock(self, end: End) -> bool:
        return self.kind == FASTSOCK and not end.foreign

    def _how(self, end: End) -> dict[str, Any]:
        variables = {**environment(os.environ, self._under_fastsock(end)), **dict(self.row.environment)}
        return {"cwd": self.scratch, "env": variables, "start_new_session": True}

    def _cpus(self, second: bool) -> tuple[int, ...] | None:
        return placed(self.placement)[second]

    def _until_listening(self, number: int, listens: str, deadline: float) -> None:
        path = listens.format(**self._values()) if "/" in listens else None
        family, address = (socket.AF_UNIX, path) if path else (socket.AF_INET, ("127.0.0.1", self.ports[listens]))
        while True:
            with suppress(OSError), socket.socket(family) as sock:
                sock.settimeout(1)
                sock.connect(address)
                return
            if self.servers[number].poll() is not None or monotonic() > deadline:
                raise RunFailed(f"the {self.kind} server does not listen: {self._last_lines(number)}")
            sleep(0.02)

    # ---- slices ------------------------------------------------------------------------------------------------

    def slice(self, seconds: float) -> Slice:
        """Let the client work for so long. RunFailed when it does not answer."""
        assert self.client is not None
        before = self._cpu_seconds()
        self.client.tell({"seconds": seconds})
        report = self._hear(seconds + self.row.slice_seconds)
        server, client, system = (now - then for now, then in zip(self._cpu_seconds(), before, strict=True))
        return Slice(report["operations"], report["seconds"], server, client, system)

    def counted_slice(self, seconds: float, by: str) -> tuple[Slice, Calls, Calls]:
        """A slice with the system calls of the servers and of the client. OSError when they cannot be counted."""
        assert self.client is not None
        servers = [server.pid for server in self.servers]
        with counting(by, servers) as at_servers, counting(by, [self.client.pid]) as at_client:
            done = self.slice(seconds)
        return done, at_servers, at_client

    def _cpu_seconds(self) -> tuple[float, float, float]:
        """So far: of the servers, of the client, and of both in the kernel."""
        assert self.client is not None
        servers, client = [server.pid for server in self.servers], self.client.pid
        system = processes.system_seconds([*servers, client])
        return processes.cpu_seconds(servers), processes.cpu_seconds([client]), system

    def _hear(self, seconds: float) -> dict[str, Any]:
        assert self.client is not None
        try:
            return self.client.hear(max(seconds, 0.1))
        except RunFailed as failure:
            raise RunFailed(f"{self.kind}: {failure}\n{self._what_they_do()}") from None

    # ---- what went wrong ---------------------------------------------------------------------------------------

    def _what_they_do(self) -> str:
        """What every end is doing, and its threads' stacks as Python has them; ends the processes."""
        assert self.client is not None
        roots = {
            **{f"server{number}": server.pid for number, server in enumerate(self.servers)},
            "client": self.client.pid,
        }
        doing = [f"{name}: {processes.doing(pid)}" for name, pid in roots.items()]
        members = [member for pid in roots.values() for member in processes.family(pid)]
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
        sleep(0.5)
        doing += [f"server{number} said: {self._last_lines(number)}" for number in range(len(self.servers))]
        return "\n".join([*doing, f"client said: {last_lines(self.client.said())}"])

    def _log(self, number: int) -> Path:
        return self.scratch / f"server{number}.log"

    def _last_lines(self, number: int) -> str:
        return last_lines(self._log(number).read_text(errors="replace"))

    # ---- the end -----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Every process is told to end, and killed if it does not."""
        groups = [server.pid for server in self.servers]
        if self.client is not None:
            self.client.no_more_orders()
            groups.append(self.client.pid)
            self.statuses.append(self.client.close(PATIENCE))
        for server in reversed(self.servers):  # the first is the one that the others need
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                server.wait(PATIENCE)
            if server.poll() is None:
                server.kill()
            self.statuses.append(server.wait())
        for group in groups:  # what they started
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.client, self.servers = None, []

    def stats(self) -> dict[str, dict[str, Any]]:
        """`fastsock.stats()` of the ended programs that were under it and could write them."""
        found = {}
        for file in sorted(self.scratch.glob("*.json")):
            with suppress(ValueError):
                found[file.stem] = json.loads(file.read_text())
        return found


def last_lines(text: str) -> str:
    return "\n    ".join(text.strip().splitlines()[-LAST_LINES:])
