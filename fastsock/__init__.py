"""TCP between programs on one host, carried over shared memory instead of the kernel's TCP stack."""

from __future__ import annotations

import sys as _sys

from fastsock import _native as _native  # first: its error says what to do if nothing is built
from fastsock import path_events as _path_events
from fastsock._native import libc_front as _libc_front
from fastsock.config import Settings, configure
from fastsock.errors import SettingError
from fastsock.patching import is_patched, patch, unpatch
from fastsock.socket_class import fromfd, socket

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any as _Any

    from fastsock.aio import EventLoopPolicy as EventLoopPolicy
    from fastsock.aio import new_event_loop, run
    from fastsock.channels import AsyncChannel, Channel
    from fastsock.messages import AsyncGroup, Group, Message
    from fastsock.statistics import Metric, Path, Stats

__all__ = [
    "AsyncChannel",
    "AsyncGroup",
    "Channel",
    "Group",
    "Message",
    "Metric",
    "Path",
    "SettingError",
    "Settings",
    "Stats",
    "configure",
    "fromfd",
    "is_patched",
    "new_event_loop",
    "patch",
    "path_of",
    "run",
    "socket",
    "stats",
    "unpatch",
]
if _sys.version_info < (3, 14):  # deprecated from 3.14 on: still available by name
    __all__ += ["EventLoopPolicy"]

__version__ = "0.1.0"

del TYPE_CHECKING


def stats() -> Stats:
    """Returns the counters of this process."""
    from fastsock.statistics import snapshot

    return snapshot(_libc_front.counters(), *_libc_front.path_counts())


def __getattr__(name: str) -> _Any:
    """Loads the asyncio layer, messages and the records of statistics at first use: most programs need none of them."""
    if name in ("EventLoopPolicy", "new_event_loop", "run"):
        from fastsock import aio

        return getattr(aio, name)
    if name in ("AsyncChannel", "Channel"):
        from fastsock import channels

        return getattr(channels, name)
    if name in ("AsyncGroup", "Group", "Message"):
        from fastsock import messages

        return getattr(messages, name)
    if name in ("Metric", "Path", "Stats"):
        from fastsock import statistics

        return getattr(statistics, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def path_of(sock: _Any) -> Path:
    """Returns the path that a connection's bytes take, and the reason. Never raises.

    `sock` is a socket, an asyncio transport, stream or its `get_extra_info("socket")`, or a connection of
    `multiprocessing`."""
    from fastsock.statistics import Path

    info = getattr(sock, "get_extra_info", None)
    path = info("fastsock") if info is not None else None
    if isinstance(path, Path):
        return path
    shown = getattr(sock, "fastsock_path", None)  # e.g. the socket of a transport
    path = shown() if shown is not None else None
    if isinstance(path, Path):
        return path
    if info is not None:
        sock = info("socket")
    try:
        number = sock.fileno()
    except (AttributeError, OSError, ValueError):
        number = -1  # closed, or no socket
    return _path_events.path_from(_libc_front.standing(number) if type(number) is int and number >= 0 else None)
