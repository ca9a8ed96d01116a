"""Readiness on the ring: what stands for the functions of `select` under `patch()`, with the setting `ready_on_ring`.

A program that waits with them, or with `selectors`, names socket objects, and nobody else polls their descriptors. So
their numbers are not handed out by that, and connections that have moved are asked in memory (`_native/epolls.pyx`,
`_native/polls.pyx`).
"""

from __future__ import annotations

import select
import selectors
from typing import Any

from fastsock._native import epolls, polls

__all__ = ["TABLE"]

_look_up = selectors._BaseSelectorImpl._fileobj_lookup  # type: ignore[attr-defined]


def _fileobj_lookup(self: Any, fileobj: Any) -> Any:
    """As the original, but a socket's number stays between the socket and a selector of ours."""
    if type(getattr(self, "_selector", None)) in (epolls.epoll, polls.Poll) or (
        getattr(self, "_select", None) is polls.select
    ):
        number = epolls.number_of(fileobj)
        if number >= 0:
            return number
    return _look_up(self, fileobj)


TABLE: tuple[tuple[Any, str, Any], ...] = (
    (select, "select", polls.select),
    (select, "poll", polls.poll),
    (select, "epoll", epolls.epoll),
    (selectors.SelectSelector, "_select", staticmethod(polls.select)),
    (selectors.SelectSelector, "_fileobj_lookup", _fileobj_lookup),
    (selectors.PollSelector, "_selector_cls", staticmethod(polls.poll)),
    (selectors.PollSelector, "_fileobj_lookup", _fileobj_lookup),
    (selectors.EpollSelector, "_selector_cls", epolls.epoll),
    (selectors.EpollSelector, "_fileobj_lookup", _fileobj_lookup),
)
"""What is replaced, as in `patching.TABLE`."""
