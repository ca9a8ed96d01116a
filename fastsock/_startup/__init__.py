"""Calls `fastsock.patch()` at the start of a Python process.

`environment()` returns the environment for a program that `fastsock run` starts. It puts this directory first on
PYTHONPATH, so that the interpreter (module `site`) imports our `sitecustomize.py` when it starts, which calls
`start()`. Child processes inherit the environment, so Python processes that the program starts are served too, for
example by `subprocess`, or by multiprocessing's spawn and fork server. A forked process is served already.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping

import attrs

import fastsock
from fastsock._native import libc_front
from fastsock.config import REPORT, RUN, STATS, Settings

__all__ = ["REPORT", "RUN", "STATS", "environment", "start"]

DIRECTORY = os.path.dirname(os.path.abspath(__file__))


def environment(inherited: Mapping[str, str], settings: Settings, stats: str | None = None) -> dict[str, str]:
    """Returns the environment for a patched program: `inherited`, with this directory first on PYTHONPATH.

    `stats` names the file for the program's `fastsock.stats()`, written when it exits. RUN is inherited by child
    processes. The program removes STATS, so that child processes do not write to the file. REPORT, set by
    `fastsock doctor`, is the directory for the reports of all processes. Users that FASTSOCK_TRUST names stand in it by
    number.
    """
    asked = {**inherited, RUN: "1"}
    if settings.trust not in ("any", "user"):
        asked["FASTSOCK_TRUST"] = settings.trust.numbers
    # An empty PYTHONPATH counts as unset, but an empty entry in a longer one means the current directory.
    entries = inherited["PYTHONPATH"].split(os.pathsep) if inherited.get("PYTHONPATH") else []
    asked["PYTHONPATH"] = os.pathsep.join([DIRECTORY, *(entry for entry in entries if entry != DIRECTORY)])
    if stats is not None:
        asked[STATS] = os.path.abspath(stats)
    return asked


def start() -> None:
    """Patches this process with the settings from FASTSOCK_* variables. Does nothing if it uses libfastsock.so.

    Raises `fastsock.SettingError` for a value out of range.
    """
    if libc_front.serves():
        return
    stats = os.environ.pop(STATS, None)
    report = os.environ.get(REPORT)
    if report is not None:
        from fastsock import run_report

        run_report.start(report)
    fastsock.patch()
    if stats is not None:
        atexit.register(_write_stats, stats, os.getpid())


def _write_stats(file: str, process: int) -> None:
    if os.getpid() != process:  # a forked child that ends by sys.exit()
        return
    try:
        with open(file, "w", encoding="utf-8") as output:
            json.dump(attrs.asdict(fastsock.stats()), output, default=dict)
    except OSError as error:
        print(f"fastsock: cannot write statistics: {error}", file=sys.stderr)
