"""What a transport of the asyncio layer is told about paths, and the shims below it.

A native transport (`fastsock._native.transport`) is given this module, which stands above the rendezvous, as its
`policy`: the table of functions that it asks, and of classes that are Python's.
"""

from __future__ import annotations

import asyncio
import logging
import socket as stdlib
import sys
import weakref
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastsock import facade, rendezvous
from fastsock._native import vi
from fastsock._native.queue import CompletionQueue
from fastsock._native.shim import ShimOfBuffered
from fastsock._native.telling import Origin
from fastsock._native.transport import StdlibTransport as NativeStdlibTransport
from fastsock._native.transport import Transport
from fastsock._native.vi import Endpoint

if TYPE_CHECKING:
    from fastsock.statistics import Path

__all__ = ["Transport", "close_queue", "is_stdlib", "new_origin"]

_log = logging.getLogger("asyncio")  # what the loops themselves say goes there
_INTERNET = (stdlib.AF_INET, stdlib.AF_INET6)
OVERRIDDEN = rendezvous.Reason.OVERRIDDEN
RESOURCES = rendezvous.Reason.RESOURCES
HANDED_OUT = rendezvous.Reason.HANDED_OUT
ENDING = rendezvous.Reason.ENDING
UNPAID = (False, False, False, rendezvous.Reason.UNPAID)
"""How a connection stands whose service's sessions are too short, or otherwise such that no move has paid there."""

Standing = tuple[bool, bool, bool, str]
"""As `Endpoint.standing`."""

PLAIN_SOCKETS = (facade.socket, facade.socket.__mro__[1])
"""The classes of sockets without data calls of a program's own: the facade's and the stdlib's."""


class BufferedShim(ShimOfBuffered, asyncio.BufferedProtocol):
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
    _protocol = property(NativeStdlibTransport.get_protocol, NativeStdlibTransport.set_protocol)


class _ShownSocket(TransportSocket):
    """The socket of a transport on one of the stdlib's loops. Who asks for the number of its descriptor takes the
    connection off the ring: C code may read and write it."""

    __slots__ = ("_transport",)

    def __init__(self, sock: Any, transport: Transport) -> None:
        super().__init__(sock)
        self._transport = weakref.ref(transport)

    def fileno(self) -> int:
        hand_out(self._transport)
        return super().fileno()

    def dup(self) -> Any:
        hand_out(self._transport)
        return super().dup()

    def shutdown(self, how: int) -> None:
        hand_out(self._transport)
        super().shutdown(how)

    def __repr__(self) -> str:
        return repr(TransportSocket(self._sock))  # type: ignore[attr-defined]

    def fastsock_path(self) -> Path | None:
        """For fastsock.path_of, which hands nothing out."""
        return path_behind(self._transport)


def hand_out(transport: weakref.ref[Transport]) -> None:
    """Somebody asks for the number of a transport's descriptor."""
    alive = transport()
    if alive is not None:
        alive.hand_out()


def path_behind(transport: weakref.ref[Transport]) -> Path | None:
    """The path of a transport, None if it is gone."""
    alive = transport()
    return alive.path() if alive is not None else None


shown_as: dict[type, Callable[[Any, Transport], Any]] = {
    TransportSocket: lambda sock, transport: _ShownSocket(sock._sock, transport),
}
"""What a program gets in place of a socket of the loop's own transport, by the class of that."""


def show_socket(transport: Transport, sock: Any) -> Any:
    """What get_extra_info("socket") gives, where the loop's own transport gives `sock`."""
    shown = shown_as.get(type(sock))
    return sock if shown is None else shown(sock, transport)


def new_origin(loop: Any) -> Origin:
    """At a loop's first connection: what its transports have in common, and with it the completion queue."""
    return Origin(loop, CompletionQueue(loop), is_stdlib(loop), sys.modules[__name__])


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


def begin(transport: Transport, operations: int, standing: Standing | None) -> Endpoint | None:
    """The endpoint of a connection that has proved busy and stands as path_of takes it. None if it is being closed."""
    sock = transport.lower.get_extra_info("socket")
    fd = sock.fileno() if sock is not None and sock.family in _INTERNET else -1
    if fd < 0:
        return None
    endpoint = Endpoint(fd)
    endpoint.adopt(fd)
    vi.begin_search(endpoint, operations, path_of(standing).reason)
    return endpoint


def decide(endpoint: Endpoint, reason: str) -> None:
    """A connection whose transport has an endpoint stays on kernel TCP."""
    vi.decide(endpoint, reason)


def counted_as(standing: Standing | None, reason: str) -> None:
    """A connection that has just been opened stays on kernel TCP."""
    vi.count_as(path_of(standing).reason, reason)


def leave(endpoint: Endpoint, reason: str) -> bool:
    """The endpoint of a socket object that a loop gets and that shall not move, or not stay where it is. False if it
    has to stay on the ring."""
    vi.decide(endpoint, reason)
    return rendezvous.leave(endpoint)


def path_of(standing: Standing | None) -> Path:
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
