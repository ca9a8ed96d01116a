"""What a transport of the asyncio layer is told about paths, and the shims below it.

A native transport (`fastsock._native.transport`) is given this module, which stands above the rendezvous, as its
`policy`: the table of functions that it asks, and of classes that are Python's.
"""

from __future__ import annotations

import asyncio
import logging
import socket as stdlib
import sys
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

from fastsock import path_policy, socket_class
from fastsock._native import registry
from fastsock._native.completion_queue import CompletionQueue
from fastsock._native.loop_connection import LoopContext
from fastsock._native.registry import Endpoint
from fastsock._native.relay_protocol import BufferedRelay
from fastsock._native.transport import StdlibTransport as NativeStdlibTransport
from fastsock._native.transport import Transport

if TYPE_CHECKING:
    from fastsock.statistics import Path

__all__ = ["Transport", "close_queue", "is_stdlib", "new_origin"]

_log = logging.getLogger("asyncio")  # what the loops themselves say goes there
_INTERNET = (stdlib.AF_INET, stdlib.AF_INET6)
OVERRIDDEN = path_policy.Reason.OVERRIDDEN
RESOURCES = path_policy.Reason.RESOURCES
HANDED_OUT = path_policy.Reason.HANDED_OUT
ENDING = path_policy.Reason.ENDING
UNPAID = (False, False, False, path_policy.Reason.UNPAID)
"""How a connection stands whose service's sessions are too short, or otherwise such that no move has paid there."""

ConnectionInfo = tuple[bool, bool, bool, str]
"""As `Endpoint.standing`."""

PLAIN_SOCKETS = (socket_class.socket, socket_class.socket.__mro__[1])
"""The classes of sockets without data calls of a program's own: the facade's and the stdlib's."""


class BufferedRelayProtocol(BufferedRelay, asyncio.BufferedProtocol):
    """Below a BufferedProtocol, which asyncio tells by its class."""

    __slots__ = ()


def _of_lower(name: str) -> property:
    """An attribute of the stdlib's transport, which stands below ours."""

    def get(self: Any) -> Any:
        return getattr(self.lower, name)

    def set(self: Any, value: Any) -> None:
        setattr(self.lower, name, value)

    return property(get, set)


class StdlibTransport(NativeStdlibTransport):
    """With a `__dict__`, as the stdlib's transports have, and the attributes that programs and tests use of theirs."""

    _sock, _sock_fd, _extra, _server = map(_of_lower, ("_sock", "_sock_fd", "_extra", "_server"))
    _conn_lost, _buffer, _empty_waiter = map(_of_lower, ("_conn_lost", "_buffer", "_empty_waiter"))
    _loop = _of_lower("_loop")
    _sendfile_compatible = _SelectorSocketTransport._sendfile_compatible
    _protocol = property(NativeStdlibTransport.get_protocol, NativeStdlibTransport.set_protocol)


def new_origin(loop: Any) -> LoopContext:
    """At a loop's first connection: what its transports have in common, and with it the completion queue."""
    return LoopContext(loop, CompletionQueue(loop), is_stdlib(loop), sys.modules[__name__])


def is_stdlib(loop: Any) -> bool:
    """Whether it is one of the stdlib's loops, which make their transports of socket objects."""
    return isinstance(loop, asyncio.BaseEventLoop)


def close_queue(loop: Any) -> None:
    """The loop is about to be closed."""
    origin: LoopContext | None = getattr(loop, "_fastsock_origin", None)
    if origin is not None:
        del loop._fastsock_origin
        origin.queue.close()


# ---- what the native transport asks -------------------------------------------------------------------------


def begin(transport: Transport, operations: int, standing: ConnectionInfo | None) -> Endpoint | None:
    """The endpoint of a connection that has proved busy and stands as path_of takes it. None if it is being closed."""
    sock = transport.lower.get_extra_info("socket")
    fd = sock.fileno() if sock is not None and sock.family in _INTERNET else -1
    if fd < 0:
        return None
    endpoint = Endpoint(fd)
    endpoint.adopt(fd)
    registry.begin_search(endpoint, operations, path_of(standing).reason)
    return endpoint


def decide(endpoint: Endpoint, reason: str) -> None:
    """A connection whose transport has an endpoint stays on kernel TCP."""
    registry.decide(endpoint, reason)


def counted_as(standing: ConnectionInfo | None, reason: str) -> None:
    """A connection that has just been opened stays on kernel TCP."""
    registry.count_as(path_of(standing).reason, reason)


def leave(endpoint: Endpoint, reason: str) -> bool:
    """The endpoint of a socket object that a loop gets and that shall not move, or not stay where it is. False if it
    has to stay on the ring."""
    registry.decide(endpoint, reason)
    return path_policy.leave(endpoint)


def path_of(standing: ConnectionInfo | None) -> Path:
    """The path of a transport's connection, from where its endpoint stands; None: it has none."""
    return path_policy.path_from(standing or (False, False, False, path_policy.Reason.FEW))


def violated(endpoint: Endpoint) -> None:
    """The ring is broken, by the peer or by this side: the connection is reset."""
    path_policy.report_violation(endpoint, endpoint.reset())


def debug(transport: Transport, message: str) -> None:
    """A connection ended with an OSError in a protocol's callback, and the loop is in debug mode."""
    _log.debug("%r: %s", transport, message, exc_info=True)
