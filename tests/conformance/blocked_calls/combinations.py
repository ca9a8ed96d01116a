"""What is enumerated: the states of the two directions, the calls in progress at one end, and what happens meanwhile.

`near` is the end with the calls; `far` is its peer. "Out" is the direction from near to far, "in" the other one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

PATHS = ("tcp", "met", "out", "in", "ring")
"""Where fastsock carries the bytes: neither end looks for the other yet; both are attached, and nothing has moved;
one direction has moved; both have."""

ORACLE = "kernel"
"""The path of the comparison: stdlib sockets, without fastsock."""

CONTENTS = ("empty", "waiting", "full")
"""Nothing is unread; a few bytes are; the sender can send no more."""

OUT_ENDS = ("open", "us")
"""Whether near has ended its stream. (That far reads no more, SHUT_RD, is not told to near: no state of near's.)"""

IN_ENDS = ("open", "us", "peer")
"""Whether near has stopped receiving (SHUT_RD), or far has ended its stream."""

RECEIVES = {"recv", "waitall"}
"""Calls that take bytes."""

CALLS = {
    "none": (), "recv": ("recv",), "recv-timeout": ("recv",), "peek": ("peek",), "waitall": ("waitall",),
    "poll": ("poll",), "sendall": ("sendall",), "both": ("recv", "sendall"),
}  # fmt: skip
"""The calls that are blocked at near when the event happens."""

WHAT = ("shut_wr", "shut_rd", "shut_rdwr", "close", "reset", "leave", "killed", "child_exits", "child_goes_on")
"""Half-closes, close, close with SO_LINGER 0, detach; SIGKILL of the end's process; a fork whose child exits at once;
a fork whose child goes on when the parent has closed."""

EVENTS = tuple(f"{end}.{what}" for end in ("near", "far") for what in WHAT)

NEEDS_PROCESSES = ("killed", "child_exits", "child_goes_on")
"""Events that need a process for each end."""


class Combination(NamedTuple):
    out: str
    out_end: str
    inn: str
    in_end: str
    call: str
    event: str

    def __str__(self) -> str:
        return f"out={self.out}/{self.out_end} in={self.inn}/{self.in_end} call={self.call} event={self.event}"

    @property
    def in_processes(self) -> bool:
        return self.event.partition(".")[2] in NEEDS_PROCESSES


def why_unreachable(c: Combination) -> str | None:
    """Why a call cannot be in progress in this state, on TCP; None if it can."""
    calls = CALLS[c.call]
    if {"recv", "peek", "poll"} & {*calls} and (c.inn != "empty" or c.in_end != "open"):
        return "a receive with bytes or the end before it returns at once"
    if "waitall" in calls and (c.inn == "full" or c.in_end != "open"):
        return "a receive of all with enough bytes or the end before it returns at once"
    if "sendall" in calls and c.out_end != "open":
        return "a send behind the own end fails at once"
    if "sendall" in calls and c.out != "full":
        return "a send with room before it returns at once"
    return None


def every() -> Iterator[Combination]:
    """All combinations, reachable or not."""
    return (Combination(*c) for c in itertools.product(CONTENTS, OUT_ENDS, CONTENTS, IN_ENDS, CALLS, EVENTS))


def reachable() -> list[Combination]:
    return [c for c in every() if why_unreachable(c) is None]
