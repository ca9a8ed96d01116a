"""Runs a coroutine on a loop with the asyncio layer."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastsock.aio.loops import new_event_loop

__all__ = ["run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, loop: str = "uvloop", debug: bool | None = None) -> T:
    """Like `asyncio.run`, on a loop of `new_event_loop(loop)`."""
    if sys.version_info >= (3, 11):
        with asyncio.Runner(debug=debug, loop_factory=functools.partial(new_event_loop, loop)) as runner:
            return runner.run(main)
    from fastsock.aio.policy import EventLoopPolicy

    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(EventLoopPolicy(loop))
    try:
        return asyncio.run(main, debug=debug)
    finally:
        asyncio.set_event_loop_policy(policy)
