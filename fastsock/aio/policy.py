"""The event loop policy, apart from all else: Python 3.14 warns of who names the class below it, and 3.16 has none."""

from __future__ import annotations

import asyncio

from fastsock.aio.loops import check, new_event_loop

__all__ = ["EventLoopPolicy"]


class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """For programs that install a policy: `asyncio.set_event_loop_policy(fastsock.EventLoopPolicy())`.

    ValueError for a loop that `new_event_loop` does not know."""

    def __init__(self, loop: str = "uvloop") -> None:
        check(loop)
        super().__init__()
        self._loop = loop

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop of `fastsock.new_event_loop`."""
        return new_event_loop(self._loop)
