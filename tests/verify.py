"""`./dev verify`: the second tier of tests, in parts that run side by side, and one table at the end.

What a part runs, and which files of the project can change its result, is in tiers.py. Each part writes into a file of
its own in build/verify. Exits with 0 if every part passed.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .tiers import PARTS, Part

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/verify"
LIMIT = 20 * 60
"""Seconds that a part may take."""
LINES = 25
"""Of a part that fails, so many last lines are shown."""


def changed_files(since: str) -> list[str]:
    """The files that differ from a revision, and those that git does not know yet."""
    commands = ["git", "diff", "--name-only", since], ["git", "ls-files", "--others", "--exclude-standard"]
    return [
        line
        for command in commands
        for line in subprocess.check_output(command, cwd=ROOT, text=True, timeout=60).splitlines()
    ]


def touched(part: Part, files: list[str]) -> bool:
    """Whether a change of one of the files can change what the part finds."""
    patterns = [*part.files, *(f"{path}*" for path in part.tests)]
    return any(fnmatch.fnmatch(file, pattern) for file in files for pattern in patterns)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev verify", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--changed", nargs="?", const="HEAD", metavar="REVISION",
        help="only parts that the changes since REVISION can touch (default: what is not committed)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="parts at a time (default: CPUs)"
    )
    parser.add_argument("--list", action="store_true", help="print the parts and what each is for, and run nothing")
    parser.add_argument(
        "--tools", action="store_true", help=argparse.SUPPRESS
    )  # for ./dev: what they need of the system
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)} (there are: {', '.join(PARTS)})")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    return options


def chosen(options: argparse.Namespace) -> list[str]:
    """The names of the parts to run, the longest first."""
    names = sorted(options.parts or PARTS, key=lambda name: -PARTS[name].seconds)
    if options.changed is not None:
        files = changed_files(options.changed)
        names = [name for name in names if touched(PARTS[name], files)]
    return names


@dataclass
class Ended:
    """How a part ended."""

    name: str
    verdict: str
    seconds: float
    last: str


class Runner:
    """Runs parts, and ends those that still run when it is told to stop."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, name: str) -> Ended:
        output, began = OUT / f"{name}.txt", time.monotonic()
        with output.open("wb") as file:
            with self._lock:
                if self._stopped:
                    return Ended(name, "not run", 0, "")
                process = self._running[name] = subprocess.Popen(
                    PARTS[name].command(),
                    cwd=ROOT,
                    env={**os.environ, "PYTHON": sys.executable},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            print(f"verify: {name} begins", flush=True)
            try:
                status = process.wait(LIMIT)
                verdict = "passed" if status == 0 else f"FAILED ({status})"
            except subprocess.TimeoutExpired:
                verdict = f"FAILED (not over after {LIMIT} s)"
            self._end(name)
        lines = output.read_text(errors="replace").splitlines() or [""]
        ended = Ended(name, verdict, time.monotonic() - began, lines[-1].strip("= ")[:80])
        print(f"verify: {name} {verdict} after {ended.seconds:.0f} s", flush=True)
        if verdict != "passed":
            print(*lines[-LINES:], f"verify: all of it: {output.relative_to(ROOT)}", sep="\n", flush=True)
        return ended

    def _end(self, name: str) -> None:
        """Whatever a part has started is in its session."""
        with self._lock:
            process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running.values())
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    names = chosen(options)
    if options.tools:
        print(*sorted({tool for name in names for tool in PARTS[name].tools if not options.list}))
        return 0
    if options.list:
        for name in names:
            print(f"{name:12}{PARTS[name].what}")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    runner = Runner()
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(runner.run, name) for name in names]
        try:
            results = [future.result() for future in futures]
        except KeyboardInterrupt:
            runner.stop()
            results = [future.result() for future in futures]
    print(f"\n{'part':12}{'result':18}{'seconds':>8}  last line")
    for ended in results:
        print(f"{ended.name:12}{ended.verdict:18}{ended.seconds:8.0f}  {ended.last}")
    failed = [ended for ended in results if ended.verdict != "passed"]
    print(f"verify: {len(results) - len(failed)} passed, {len(failed)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
