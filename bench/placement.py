"""Where the two ends of a line run."""

from __future__ import annotations

import os

FREE, APART, TOGETHER, SERVER = "free", "apart", "together", "server"


def placed(placement: str) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The CPUs of a server and of a client, None for all: both left to the scheduler, a CPU for each, one CPU for
    both, or only the server confined."""
    allowed = sorted(os.sched_getaffinity(0))
    first, last = (allowed[0],), (allowed[-1],)
    return {FREE: (None, None), APART: (first, last), TOGETHER: (last, last), SERVER: (first, None)}[placement]
