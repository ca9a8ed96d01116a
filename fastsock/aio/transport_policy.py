"""The Python functions and classes that native transports of the asyncio layer use.

Native transports (`fastsock._native.transport`) get this module as their `policy` and look up the functions and classes
by name.
"""

from __future__ import annotations

import asyncio
import logging
import socket as stdlib
import sys
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

from fastsock import path_events, socket_class
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

_log = logging.getLogger("asyncio")  # the logger that asyncio uses
_INTERNET = (stdlib.AF_INET, stdlib.AF_INET6)
OVERRIDDEN = path_events.Reason.OVERRIDDEN
RESOURCES = path_events.Reason.RESOURCES
HANDED_OUT = path_events.Reason.HANDED_OUT
ENDING = path_events.Reason.ENDING
UNPAID = (False, False, False, path_events.Reason.UNPAID)
"""The `standing` of a connection of a service whose sessions are too short to move."""

ConnectionInfo = tuple[bool, bool, bool, str]
"""As `Endpoint.standing`."""

PLAIN_SOCKETS = (socket_class.socket, socket_class.socket.__mro__[1])
"""The socket classes that do not override recv or send: ours and the stdlib's."""


class BufferedRelayProtocol(BufferedRelay, asyncio.BufferedProtocol):
    """The relay below a BufferedProtocol. asyncio checks the base class."""

    __slots__ = ()


def _of_lower(name: str) -> property:
    """Returns a property that delegates to the stdlib's transport below ours."""

    def get(self: Any) -> Any:
        return getattr(self.lower, name)

    def set(self: Any, value: Any) -> None:
        setattr(self.lower, name, value)

    return property(get, set)


class StdlibTransport(NativeStdlibTransport):
    """Has a `__dict__`, and the private attributes of the stdlib's transports that programs and tests use."""

    _sock, _sock_fd, _extra, _server = map(_of_lower, ("_sock", "_sock_fd", "_extra", "_server"))
    _conn_lost, _buffer, _empty_waiter = map(_of_lower, ("_conn_lost", "_buffer", "_empty_waiter"))
    _loop = _of_lower("_loop")
    _sendfile_compatible = _SelectorSocketTransport._sendfile_compatible
    _protocol = property(NativeStdlibTransport.get_protocol, NativeStdlibTransport.set_protocol)


def new_origin(loop: Any) -> LoopContext:
    """Creates the state that a loop's transports share, at the loop's first connection."""
    return LoopContext(loop, CompletionQueue(loop), is_stdlib(loop), sys.modules[__name__])


def is_stdlib(loop: Any) -> bool:
    """Returns true for the stdlib's loops, whose transports use socket objects."""
    return isinstance(loop, asyncio.BaseEventLoop)


def close_queue(loop: Any) -> None:
    """Closes the loop's completion queue. Called before the loop is closed."""
    origin: LoopContext | None = getattr(loop, "_fastsock_origin", None)
    if origin is not None:
        del loop._fastsock_origin
        origin.queue.close()


# ---- called by the native transport -------------------------------------------------------------------------


def begin(transport: Transport, operations: int, standing: ConnectionInfo | None) -> Endpoint | None:
    """Returns an endpoint for a connection that is busy enough to move. Returns None if it is being closed."""
    sock = transport.lower.get_extra_info("socket")
    fd = sock.fileno() if sock is not None and sock.family in _INTERNET else -1
    if fd < 0:
        return None
    endpoint = Endpoint(fd)
    endpoint.adopt(fd)
    registry.begin_search(endpoint, operations, path_of(standing).reason)
    return endpoint


def decide(endpoint: Endpoint, reason: str) -> None:
    """Keeps a connection with an endpoint on kernel TCP."""
    registry.decide(endpoint, reason)


def counted_as(standing: ConnectionInfo | None, reason: str) -> None:
    """Counts a new connection without an endpoint as staying on kernel TCP."""
    registry.count_as(path_of(standing).reason, reason)


def leave(endpoint: Endpoint, reason: str) -> bool:
    """Keeps a socket that a loop takes over on kernel TCP, or takes it back there. Returns false if that fails and the
    connection stays on the ring."""
    registry.decide(endpoint, reason)
    return path_events.leave(endpoint)


def path_of(standing: ConnectionInfo | None) -> Path:
    """Returns the path for an endpoint's `standing`; None stands for a connection without an endpoint."""
    return path_events.path_from(standing or (False, False, False, path_events.Reason.FEW))


def violated(endpoint: Endpoint) -> None:
    """Resets a connection whose ring is broken, and logs the cause."""
    path_events.report_violation(endpoint, endpoint.reset())


def debug(transport: Transport, message: str) -> None:
    """Logs an OSError from a protocol's callback that ended the connection. Called if the loop is in debug mode."""
    _log.debug("%r: %s", transport, message, exc_info=True)
