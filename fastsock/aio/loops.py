"""Event loops whose TCP connections may move to the ring.

The methods of a loop that make transports are wrapped. The loop's own method works as always, but gets a relay protocol
in place of the program's protocol, and the program gets our transport instead of the loop's. `patch()` puts the wrapped
methods into the loop classes; `new_event_loop` makes a loop of a subclass with these methods.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from fastsock import path_events
from fastsock._native.relay_protocol import close_queue
from fastsock.aio import sendfile, stdlib_loop

__all__ = ["check", "methods_for", "new_event_loop"]

Loop = asyncio.AbstractEventLoop


# ---- making loops ------------------------------------------------------------------------------------------


def new_event_loop(loop: str = "uvloop") -> Loop:
    """Returns a new event loop with the asyncio layer: uvloop's, or the stdlib's selector loop (`"asyncio"`).

    Can be used as `asyncio.Runner(loop_factory=fastsock.new_event_loop)`. Raises ValueError for another name."""
    check(loop)
    path_events.serves()  # first: the functions are in place before the loop makes its epoll instance
    if loop == "asyncio":
        return _class_above(asyncio.SelectorEventLoop)()  # type: ignore[no-any-return]
    import uvloop

    return _class_above(uvloop.Loop)()  # type: ignore[no-any-return]


def check(loop: str) -> None:
    """Raises ValueError for a loop that `new_event_loop` does not know."""
    if loop not in ("uvloop", "asyncio"):
        raise ValueError(f"loop is {loop!r}, but must be 'uvloop' or 'asyncio'")


@functools.cache
def _class_above(base: type) -> type:
    return type("EventLoop", (base,), {"__doc__": "A loop with the asyncio layer.", **methods_for(base)})


# ---- the methods -------------------------------------------------------------------------------------------


@functools.cache
def methods_for(base: Any) -> dict[str, Callable[..., Any]]:
    """Returns the wrapped methods for a loop class, by name. If `patch()` has wrapped a method already, the loop's own
    method is wrapped again, so that no method is wrapped twice."""
    methods: dict[str, Callable[..., Any]] = {}
    for name, wrap in {**_wrappers_for(base), "close": _wrap_close}.items():
        own = getattr(base, name)
        own = _own_methods.get(own, own)
        methods[name] = functools.wraps(own)(wrap(own))
        _own_methods[methods[name]] = own
    return methods


def _wrappers_for(base: Any) -> dict[str, Callable[[Any], Any]]:
    if issubclass(base, asyncio.BaseEventLoop):
        return {**stdlib_loop.WRAPPERS, **sendfile.STDLIB}
    from fastsock.aio import uvloop_loop

    return {**uvloop_loop.wrappers(), **sendfile.UVLOOP}


_own_methods: dict[Any, Any] = {}  # wrapped method -> the loop's own


def _wrap_close(original: Any) -> Any:
    def close(self: Any) -> None:
        if not self.is_running():
            close_queue(self)
        original(self)

    return close
