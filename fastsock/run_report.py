"""Writes a report of this process for `fastsock doctor -- PROGRAM`: a file of JSON lines, named by the process id.

`fastsock._startup` loads this module if FASTSOCK_RUN_REPORT is set. Each event is written at once, as the process may
be killed. No descriptor stays open, as programs may close descriptors that they do not know.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from ipaddress import ip_address
from typing import Any

import attrs

import fastsock
from fastsock import config, observability, path_events
from fastsock._native import registry

__all__ = ["loops_out_of_reach", "start"]

KEPT = {
    "fastsock.path",
    "fastsock.declined",
    "fastsock.out_of_reach",
    "fastsock.violation",
    "fastsock.fault",
    "fastsock.bridge",
    "fastsock.stays_on_ring",
    "fastsock.rendezvous_failed",
    "fastsock.no_connection_thread",
}
"""Events that are written."""


def start(directory: str) -> None:
    """Starts the report of this process and of those that it forks. Called before `patch()`."""
    observability.recorder = Recorder(directory)


@attrs.define
class Recorder:
    """Receives every event of `fastsock.observability`, and writes those in KEPT."""

    directory: str
    begun: int = 0
    """The process that wrote the first line."""

    def __call__(self, what: str, values: dict[str, Any]) -> None:
        if what == "fastsock.patched":
            self._begin()
        elif what in KEPT:
            self._write({"event": what, **values, **_ends(values.get("fd"))})

    def _begin(self) -> None:
        atexit.register(self._end, os.getpid())
        self._write({"event": "start", "origins": config.origins()})

    def _end(self, process: int) -> None:
        if os.getpid() == process:  # else a forked child that leaves through sys.exit()
            stats = attrs.asdict(fastsock.stats())
            stats["fallback_reasons"] = dict(stats["fallback_reasons"])
            self._write({"event": "end", "stats": stats, "loops": loops_out_of_reach(), "open": still_open()})

    def _write(self, values: dict[str, Any]) -> None:
        line = json.dumps({"time": time.time(), "argv": sys.orig_argv, **values}, default=str)
        try:
            with open(os.path.join(self.directory, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            pass  # no descriptor is left, or the doctor has ended: the program must go on


def _text_of(packed: bytes) -> str:
    """Returns an address as text. IPv4-mapped addresses become IPv4, so that both ends give the same text."""
    address = ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _ends(fd: int | None) -> dict[str, str]:
    """Returns the two addresses of a connection, or {} if it is not known."""
    try:
        endpoint = registry.find(fd) if fd in registry.tracked() else None
        if endpoint is None:
            return {}
        local, peer = (f"{_text_of(address)}:{port}" for address, port in endpoint.ends())
    except OSError:
        return {}  # reset, or closed
    return {"local": local, "peer": peer}


def still_open() -> list[dict[str, str]]:
    """Returns the open connections of this process, each with its path and reason."""
    found = []
    for fd, endpoint in registry.tracked().items():
        if ends := _ends(fd):
            found.append({**ends, **attrs.asdict(path_events.path_from(endpoint.standing))})
    return found


def loops_out_of_reach() -> list[str]:
    """Returns the event loop classes of this process that create transports themselves, out of fastsock's reach."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    reached: tuple[type, ...] = (asyncio.selector_events.BaseSelectorEventLoop,)
    uvloop = sys.modules.get("uvloop")
    if uvloop is not None:
        reached += (uvloop.Loop,)
    own = {"asyncio", "uvloop", "fastsock"}
    found, waiting = set(), [asyncio.AbstractEventLoop]
    while waiting:
        for one in waiting.pop().__subclasses__():
            waiting.append(one)
            if one.__module__.partition(".")[0] in own:
                continue
            # A class that derives from a patched one is reached, unless it overrides a method that makes connections.
            makes = any("create_connection" in vars(parent) for parent in _until(one, reached))
            if not issubclass(one, reached) or makes:
                found.add(f"{one.__module__}.{one.__qualname__}")
    return sorted(found)


def _until(one: type, reached: tuple[type, ...]) -> list[type]:
    """Returns the classes in the method resolution order before the first one that fastsock patches."""
    before: list[type] = []
    for parent in one.__mro__:
        if parent in reached or parent.__module__.partition(".")[0] == "asyncio":
            break
        before.append(parent)
    return before
