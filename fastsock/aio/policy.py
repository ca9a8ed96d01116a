"""The event loop policy. A module of its own, as Python 3.14 deprecates the base class and 3.16 removes it."""

from __future__ import annotations

import asyncio

from fastsock.aio.loops import check, new_event_loop

__all__ = ["EventLoopPolicy"]


class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """For programs that install a policy: `asyncio.set_event_loop_policy(fastsock.EventLoopPolicy())`.

    Raises ValueError for a loop that `new_event_loop` does not know."""

    def __init__(self, loop: str = "uvloop") -> None:
        check(loop)
        super().__init__()
        self._loop = loop

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Returns a loop of `fastsock.new_event_loop`."""
        return new_event_loop(self._loop)
