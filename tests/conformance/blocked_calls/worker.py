"""A process that plays combinations on one path: `python -m conformance.blocked_calls.worker PATH QUIET`.

Reads the combinations from stdin, a JSON list each line, and prints what was seen of each as a JSON object. Plain ones
run in batches in this process. Those whose event needs processes get a process each, with a forked peer: such a process
holds no other connection that a fork could inherit.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
from collections.abc import Iterable

from harness.pairs import ON_UNIX_STREAMS

from .combinations import ORACLE, Combination
from .script import Play, drive

BATCH = 60
"""Plays at once in this process: 120 sockets, and what the ring needs beside them."""

PROCESSES = 16
"""Processes at once, each with a peer of its own."""

HANG = 40
"""Seconds after which a batch, or a process, is ended with the tracebacks of its threads; and as many quiet times."""


def watch(quiet: float) -> None:
    faulthandler.dump_traceback_later(HANG * (1 + quiet), exit=True)


def tell(play: Play) -> None:
    result = {"combination": play.combination, "seen": play.seen, "problem": play.problem, "state": play.state}
    line = json.dumps(result)
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.encode() + b"\n")  # one write: lines of several processes do not mix


def play_in_process(path: str, combination: Combination, quiet: float) -> None:
    """In a forked child: does not return."""
    status = 1
    try:
        watch(quiet)
        drive([Play(path, combination)], quiet, tell)
        status = 0
    finally:
        os._exit(status)


def play_in_processes(path: str, combinations: Iterable[Combination], quiet: float) -> None:
    running = 0
    for combination in combinations:
        if running == PROCESSES:
            os.wait()
            running -= 1
        if os.fork() == 0:
            play_in_process(path, combination, quiet)
        running += 1
    for _ in range(running):
        os.wait()


def main() -> None:
    path, quiet = sys.argv[1], float(sys.argv[2])
    combinations = [Combination(*json.loads(line)) for line in sys.stdin]
    if path != ORACLE:
        import fastsock

        # Without spare parts a direction is full at about a megabyte, as the limits of script.py want it.
        fastsock.patch(
            move_after=1_000_000 if path == "tcp" else 0, _combine_when_full=False, unix_streams=ON_UNIX_STREAMS
        )
    play_in_processes(path, [c for c in combinations if c.in_processes], quiet)
    plain = [c for c in combinations if not c.in_processes]
    for start in range(0, len(plain), BATCH):
        watch(quiet)
        drive([Play(path, c) for c in plain[start : start + BATCH]], quiet, tell)
    faulthandler.cancel_dump_traceback_later()
    os._exit(0)  # calls that hang still do


if __name__ == "__main__":
    main()
