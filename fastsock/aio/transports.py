"""What a transport of the asyncio layer is told about paths, and the shims below it.

The native transport (`fastsock._native.aio`) asks this module, which stands above the rendezvous, as its `policy`.
"""

from __future__ import annotations

import asyncio
import logging
import socket as stdlib
import sys
from typing import Any

from fastsock import rendezvous
from fastsock._native.aio import CompletionQueue, Origin, ShimOfBuffered, Transport, install
from fastsock._native.vi import Endpoint
from fastsock.observability import Path

__all__ = ["Transport", "close_queue", "is_stdlib"]

_log = logging.getLogger("asyncio")  # what the loops themselves say goes there
_INTERNET = (stdlib.AF_INET, stdlib.AF_INET6)


class BufferedShim(ShimOfBuffered, asyncio.BufferedProtocol):
    """Below a BufferedProtocol, which asyncio tells by its class."""

    __slots__ = ()


def new_origin(loop: Any) -> Origin:
    """At a loop's first connection: what its transports have in common, and with it the completion queue."""
    return Origin(loop, CompletionQueue(loop), is_stdlib(loop))


def is_stdlib(loop: Any) -> bool:
    """Whether it is one of the stdlib's loops, which make their transports of socket objects."""
    return isinstance(loop, asyncio.BaseEventLoop)


def close_queue(loop: Any) -> None:
    """The loop is about to be closed."""
    origin: Origin | None = getattr(loop, "_fastsock_origin", None)
    if origin is not None:
        del loop._fastsock_origin
        origin.queue.close()


# ---- what the native transport asks -------------------------------------------------------------------------


def begin(transport: Transport, operations: int) -> Endpoint | None:
    """The endpoint of a connection that has proved busy. None if it is being closed."""
    sock = transport.lower.get_extra_info("socket")
    fd = sock.fileno() if sock is not None and sock.family in _INTERNET else -1
    if fd < 0:
        return None
    endpoint = Endpoint(fd)
    endpoint.adopt(fd)
    endpoint.operations = operations
    rendezvous.begin_search(endpoint)
    return endpoint


def path_of(standing: tuple[bool, bool, bool, str] | None) -> Path:
    """The path of a transport's connection, from where its endpoint stands; None: it has none."""
    return rendezvous.path_from(standing or (False, False, False, rendezvous.Reason.FEW))


def violated(endpoint: Endpoint) -> None:
    """The peer broke the protocol: its connection is reset."""
    rendezvous.report_violation(endpoint, endpoint.reset())


def ignored_write(before: int) -> None:
    """Somebody writes to a connection that is lost; asyncio warns from the fifth time on."""
    if before >= 5:
        _log.warning("socket.send() raised exception.")


def debug(transport: Transport, message: str) -> None:
    """A connection ended with an OSError in a protocol's callback, and the loop is in debug mode."""
    _log.debug("%r: %s", transport, message, exc_info=True)


install(sys.modules[__name__], BufferedShim)
