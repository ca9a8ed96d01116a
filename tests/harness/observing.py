"""A program whose bytes `fastsock tcpdump` sees, and who looks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from fastsock.tools import taps
from fastsock.tools.taps import Taps
from harness.pairs import until

TALK = """
    fastsock.patch()
    with make_pair("ring") as pair:
        near, far = pair
        say(f"{near.getsockname()[1]} {far.getsockname()[1]}")
        for line in sys.stdin:
            exec(line)
            say("done")
"""
"""Both ends are one process's. It executes lines that it is told."""

ROUNDS = "for i in range({}): near.sendall({}); far.recv(99); far.sendall({}); near.recv(99)"


@contextlib.contextmanager
def watched(pid: int, snaplen: int = 1 << 18, port: int = 0) -> Iterator[Taps]:
    """The process shows its bytes."""
    seen = Taps({pid}, snaplen, port, pytest.fail)
    seen.search()
    until(lambda: any(each.tap.answer == taps.SHOWS for each in seen.processes.values()), "the process shows its bytes")
    try:
        yield seen
    finally:
        seen.close()


def do(program: Any, line: str) -> None:
    program.tell(line)
    assert program.line() == "done"
