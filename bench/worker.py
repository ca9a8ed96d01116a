"""The process of a role, as the loops see it: where its connections are, and how it tells what it has found.

The standard library only, as in everything a role loads: a kernel role is to be a plain program.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

Report = dict[str, Any]


class BenchError(Exception):
    """The run was not what it should have been; its figure must not be used."""


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
        if not fastsock.is_patched():
            raise BenchError("a fastsock role is not patched")
        import attrs

        return {"stats": attrs.asdict(fastsock.stats())}


def plain(value: Any) -> Any:
    """JSON for the read-only mappings that a frozen snapshot may hold."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
