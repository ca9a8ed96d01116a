"""However the other end of a connection ends, in each state, whoever waits for what: this end is told what it is told
on kernel TCP, within a second."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.processes import ended

from interpose import ways_to_end

PROGRAM = Path(ways_to_end.__file__)
RUN = (sys.executable, "-m", "fastsock", "run", "--libc")
STATES = ("idle", "unread_there", "unread_both", "both_full", "half_there_full", "half_here")
WAITS = ("recv", "send", "poll_out", "select_in", "epoll_out", "epoll_ends", "edge")
AT_A_TIME = 10
"""Processes of either kind that walk the table: most of the time they wait. (ways_to_end.py has more states and waits,
for a table by hand.)"""
TURNS = 4
"""Attempts for a cell that differs: on a busy machine the other end may end before this one waits."""
Told = dict[str, str]


def in_one_process(words: list[str], cells: list[str], variables: dict[str, str]) -> Told:
    done = ended([*words, PROGRAM, *cells], **variables)
    assert done.stderr == ""
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def told(cells: list[str], folder: Path) -> tuple[Told, Told]:
    """On kernel TCP, and on the ring, whose processes leave their statistics in the folder."""
    parts = [part for at in range(AT_A_TIME) if (part := cells[at::AT_A_TIME])]
    both: tuple[Told, Told] = {}, {}

    def moved(number: int) -> list[str]:
        return [*RUN, "--stats", str(folder / f"{number}.json"), sys.executable]

    with ThreadPoolExecutor(2 * AT_A_TIME) as threads:
        plain = [threads.submit(in_one_process, [sys.executable], part, {}) for part in parts]
        at_once = {"FASTSOCK_MOVE_AFTER": "0"}
        ring = [threads.submit(in_one_process, moved(n), part, at_once) for n, part in enumerate(parts)]
        for lines, runs in zip(both, (plain, ring), strict=True):
            for run in runs:
                lines.update(run.result())
    return both


def may_abort() -> bool:
    line = ended([sys.executable, PROGRAM, "aborted_there/idle/recv"])
    return not ("EPERM" in line.stderr or "EOPNOTSUPP" in line.stderr or "ECONNRESET" not in line.stdout)


@pytest.mark.parametrize("aborted", [False, True], ids=["of its own", "aborted"])
def test_an_end_is_told_as_on_kernel_tcp(aborted: bool, tmp_path: Path) -> None:
    """(All ways at once, as a process takes longer to start than a cell.)"""
    if aborted and not may_abort():
        pytest.skip("the kernel ends no connection for us")
    ways = [way for way in ways_to_end.ENDS if way.startswith("aborted") == aborted]
    left = [f"{way}/{state}/{wait}" for way in ways for state in STATES for wait in WAITS]
    expected: dict[str, set[str]] = {cell: set() for cell in left}
    ring: Told = {}
    for turn in range(TURNS):
        plain, ring = told(left, tmp_path)
        if not turn:  # (of the few that are left later each may stay on kernel TCP on a busy machine)
            assert all(json.loads(stats.read_text())["connections_ring"] for stats in tmp_path.iterdir())
        for cell in left:
            expected[cell].add(plain[cell])
        left = [cell for cell in left if ring[cell] not in expected[cell]]
        if not left:
            break
    assert {cell: (ring[cell], expected[cell]) for cell in left} == {}
