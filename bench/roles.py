"""The program of both role processes: `python -m bench.roles server|client SETUP`, SETUP being a JSON object.

    family      "tcp" or "unix": what the server listens on
    cpus        the CPUs this process may run on, null for all
    fastsock    the keyword arguments of `fastsock.patch()`, null in a kernel role, which never loads it
    expect      where connections have to be: "ring", "tcp" (patched, but the peer is foreign), "kernel"
                (unpatched), null (patched, either path)

A role reports one JSON object per line on its standard output. The server says its address, then one line per
sample; the client takes one order per line from its standard input and answers with one line.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import loops
from bench.meeting import BenchError, Report

ROOT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1  # prctl(2)


class Role:
    """What the loops may ask of the process they run in."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.settings: dict[str, Any] | None = setup["fastsock"]
        self.expect: str | None = setup["expect"]
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # whatever else is printed, a log line for instance, must not look like a report

    def path_of(self, sock: socket.socket) -> Report:
        """Where the connection is, and why."""
        if self.settings is None:
            return {"path": "kernel", "reason": "fastsock is not loaded"}
        path = sys.modules["fastsock"].path_of(sock)
        return {"path": path.path, "reason": path.reason}

    def ring_bytes(self) -> tuple[int, int]:
        """Payload bytes that this process has sent and received over rings so far."""
        if self.settings is None:
            return 0, 0
        stats = sys.modules["fastsock"].stats()
        return stats.bytes_sent, stats.bytes_received

    def connections_moved(self) -> int:
        """Connections of this process that have moved to a ring so far."""
        return 0 if self.settings is None else int(sys.modules["fastsock"].stats().connections_ring)

    def say(self, report: Report) -> None:
        self._out.write(json.dumps(report, default=plain) + "\n")

    def pause(self, stage: str) -> None:
        """Say that a stage is reached and wait for the harness."""
        self.say({"stage": stage})
        sys.stdin.readline()

    def findings(self) -> Report:
        """What the process says of itself after a sample. BenchError when it is not what it should be."""
        if self.settings is None:
            if "fastsock" in sys.modules:
                raise BenchError("a kernel role has fastsock loaded")
            return {}
        fastsock = sys.modules["fastsock"]
        if not fastsock.is_patched() or socket.socket is not fastsock.socket:
            raise BenchError("a fastsock role is not patched")
        import attrs

        return {"stats": attrs.asdict(fastsock.stats())}


def plain(value: Any) -> Any:
    """JSON for the read-only mappings that a frozen snapshot may hold."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def import_fastsock() -> ModuleType:
    """Import fastsock. A checkout without a core built in place yields to what is installed."""
    if not any((ROOT / "fastsock" / "_native").glob("*.so")):
        sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    return importlib.import_module("fastsock")


def serve(role: Role, family: str) -> None:
    if family == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0fastsock-bench-{os.getpid()}")
        address: Any = listener.getsockname().decode()
    else:
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
    listener.listen(128)
    role.say({"address": address})
    while True:
        report = loops.serve(listener, role)
        role.say({**report, **role.findings()})


def drive(role: Role) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        report = loops.drive(order.pop("address"), order, role)
        role.say({**report, **role.findings()})


def main() -> None:
    kind, setup = sys.argv[1], json.loads(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no role outlives the harness
    if setup["cpus"]:
        os.sched_setaffinity(0, setup["cpus"])
    role = Role(setup)
    try:
        if role.settings is not None:
            import_fastsock().patch(**role.settings)
        if kind == "server":
            serve(role, setup["family"])
        else:
            drive(role)
    except (BenchError, OSError, ImportError) as problem:
        role.say({"problem": f"{type(problem).__name__}: {problem}"})
        raise


if __name__ == "__main__":
    main()
