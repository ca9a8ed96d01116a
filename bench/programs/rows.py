"""What a row of the table is: how the programs at both ends start, and what they have to reach under fastsock."""

from __future__ import annotations

from typing import Any

import attrs

from bench.placement import APART, FREE

NULL = "null test"
"""A goal: not slower than the null test's lower quartile, which is noise."""

PLACEMENTS = (FREE, APART)
"""Left to the scheduler; or a CPU for each end."""

CPU_GOALS = {FREE: 1.0, APART: 1.3}
"""CPU time per operation of both ends, as a share of the plain pair's, at most."""

Goal = float | str | None
"""A ratio of operations per second to reach, NULL, or None where nothing is required."""


@attrs.frozen
class End:
    """A program: its words after `python`, or with `native` all of its words.

    Words may have {port}, {inner} (a second port), {scripts} (the folder), {scratch} (a directory of this pair's)
    and the sizes of a `Plan` in them.
    """

    words: tuple[str, ...]
    foreign: bool = False
    """Whether it runs without fastsock in both pairs."""
    native: bool = False
    """Whether it is no Python program."""
    listens: str = ""
    """The word for its port, "port" or "inner", if later programs wait for it; or the path of its unix socket, with
    words as above. The first server has "port"."""
    second: bool = False
    """Whether it runs on the clients' CPU where each end has one."""


@attrs.frozen
class Row:
    name: str
    program: str
    """The row of the goals' table that it belongs to."""
    servers: tuple[End, ...]
    client: End
    free: Goal = None
    apart: Goal = None
    environment: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()
    """Commands and modules of Python that have to be installed."""
    reason: str = ""
    """Why it gains nothing, in words for the documents, where the path of its connections does not say it."""
    ready_seconds: float = 30.0
    """From the start of the first process until the client is ready."""
    slice_seconds: float = 20.0
    """That a slice may take longer than was asked for."""
    placements: tuple[str, ...] = PLACEMENTS

    def goal(self, placement: str) -> Goal:
        return self.free if placement == FREE else self.apart

    @property
    def needs_null(self) -> bool:
        return NULL in (self.free, self.apart)


def python(line: str, **how: Any) -> End:
    """An End from a line of words."""
    return End(tuple(line.split()), **how)
