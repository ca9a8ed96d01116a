"""How a Python process comes up patched: the environment that asks for it, and what answers.

`environment()` makes the environment that `fastsock run` starts a program in. It puts this directory at the
head of PYTHONPATH, so that the start-up of the interpreter (module `site`) imports our `sitecustomize.py`,
which calls `start()`. The environment is inherited, so the same holds for every Python process the program
starts: `subprocess`, multiprocessing's spawn and its fork server. A forked process is patched already.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping

import attrs

import fastsock
from fastsock import launch
from fastsock.config import REPORT, RUN, STATS

__all__ = ["REPORT", "RUN", "STATS", "environment", "start"]

DIRECTORY = os.path.dirname(os.path.abspath(__file__))


def environment(inherited: Mapping[str, str], stats: str | None = None) -> dict[str, str]:
    """The environment for a patched program: `inherited`, with this directory first on PYTHONPATH.

    `stats` names the file the process that is started writes its `fastsock.stats()` to when it exits. RUN is set in
    the program and in all that it starts; STATS only in the program, which takes it out; REPORT is the directory where
    `fastsock doctor` lets all of them report.
    """
    asked = {**inherited, RUN: "1"}
    # An empty PYTHONPATH counts as none, while an empty entry in a longer one is the current directory.
    entries = inherited["PYTHONPATH"].split(os.pathsep) if inherited.get("PYTHONPATH") else []
    asked["PYTHONPATH"] = os.pathsep.join([DIRECTORY, *(entry for entry in entries if entry != DIRECTORY)])
    if stats is not None:
        asked[STATS] = os.path.abspath(stats)
    return asked


def without(inherited: Mapping[str, str]) -> dict[str, str]:
    """`inherited` as it was before `environment()`: Python programs in it come up unpatched."""
    asked = {name: value for name, value in inherited.items() if name not in (RUN, STATS, REPORT)}
    entries = [entry for entry in asked.pop("PYTHONPATH", "").split(os.pathsep) if entry != DIRECTORY]
    return {**asked, "PYTHONPATH": os.pathsep.join(entries)} if any(entries) else asked


def start() -> None:
    """Patch this process with the settings of its FASTSOCK_* variables.

    Raises `fastsock.SettingError` for a value out of range. A process that has libfastsock.so is served by that.
    """
    if launch.is_served_by_library():
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
    if os.getpid() != process:  # a forked child that leaves through sys.exit()
        return
    try:
        with open(file, "w", encoding="utf-8") as output:
            json.dump(attrs.asdict(fastsock.stats()), output, default=dict)
    except OSError as error:
        print(f"fastsock: no statistics: {error}", file=sys.stderr)
