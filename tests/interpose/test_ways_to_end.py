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
AT_A_TIME = 6
"""Cells in a process, of which four run at a time. (ways_to_end.py has more states and waits, for a table by hand.)"""
TURNS = 4
"""Attempts for a cell that differs: on a busy machine the other end may end before this one waits."""


def in_one_process(words: list[str], cells: list[str], **variables: str) -> dict[str, str]:
    done = ended([*words, PROGRAM, *cells], **variables)
    assert done.stderr == ""
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def told(words: list[str], cells: list[str], **variables: str) -> dict[str, str]:
    parts = [cells[at : at + AT_A_TIME] for at in range(0, len(cells), AT_A_TIME)]
    with ThreadPoolExecutor(4) as threads:
        both = threads.map(lambda part: in_one_process(words, part, **variables), parts)
        return {cell: line for part in both for cell, line in part.items()}


@pytest.fixture(scope="module")
def _may_abort() -> None:
    line = ended([sys.executable, PROGRAM, "aborted_there/idle/recv"])
    if "EPERM" in line.stderr or "EOPNOTSUPP" in line.stderr or "ECONNRESET" not in line.stdout:
        pytest.skip("the kernel ends no connection for us")


@pytest.mark.parametrize("way", ways_to_end.ENDS)
def test_an_end_is_told_as_on_kernel_tcp(way: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if way.startswith("aborted"):
        request.getfixturevalue("_may_abort")
    plain, moved = [sys.executable], [*RUN, "--stats", str(tmp_path / "stats.json"), sys.executable]
    cells = [f"{way}/{state}/{wait}" for state in STATES for wait in WAITS]
    expected: dict[str, set[str]] = {cell: set() for cell in cells}
    got: dict[str, str] = {}
    left = cells
    for _ in range(TURNS):
        for cell, line in told(plain, left).items():
            expected[cell].add(line)
        got.update(told(moved, left, FASTSOCK_MOVE_AFTER="0"))
        left = [cell for cell in left if got[cell] not in expected[cell]]
        if not left:
            break
    assert {cell: (got[cell], expected[cell]) for cell in left} == {}
    assert json.loads((tmp_path / "stats.json").read_text())["connections_ring"] > 0
