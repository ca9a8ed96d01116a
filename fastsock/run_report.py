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
from typing import Any

import attrs

import fastsock
from fastsock import config, observability, path_events
from fastsock._native import libc_front

__all__ = ["start"]


def start(directory: str) -> None:
    """Starts the report of this process and of those that it forks. Called before `patch()`."""
    observability.recorder = Recorder(directory)
    libc_front.report_to(os.fsencode(directory))


@attrs.define
class Recorder:
    """Receives the package's events, and writes the beginning, the end, and that fastsock was declined. The events of
    connections are written to the same file by libfastsock.so (interpose/report.c)."""

    directory: str
    begun: int = 0
    """The process that wrote the first line."""

    def __call__(self, what: str, values: dict[str, Any]) -> None:
        if what == "fastsock.patched":
            self._begin()
        elif what == "fastsock.declined":
            self._write({"event": what, **values})

    def _begin(self) -> None:
        atexit.register(self._end, os.getpid())
        self._write({"event": "start", "origins": config.origins()})

    def _end(self, process: int) -> None:
        if os.getpid() == process:  # else a forked child that leaves through sys.exit()
            stats = attrs.asdict(fastsock.stats())
            stats["fallback_reasons"] = dict(stats["fallback_reasons"])
            self._write({"event": "end", "stats": stats, "open": still_open()})

    def _write(self, values: dict[str, Any]) -> None:
        line = json.dumps({"time": time.time(), "argv": sys.orig_argv, **values}, default=str)
        try:
            with open(
                os.path.join(self.directory, f"{os.getpid()}-{os.geteuid()}.jsonl"), "a", encoding="utf-8"
            ) as file:
                file.write(line + "\n")
        except OSError:
            pass  # no descriptor is left, or the doctor has ended: the program must go on


def still_open() -> list[dict[str, str]]:
    """Returns the open connections of this process, each with its path and reason."""
    return [
        {"local": one.local, "peer": one.peer, **attrs.asdict(path_events.path_from(one.standing))}
        for one in libc_front.connections()
        if one.peer
    ]
