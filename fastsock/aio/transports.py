"""What a transport of the asyncio layer is told about paths, and the shims below it.

The native transport (`fastsock._native.aio`) asks this module, which stands above the rendezvous: it passes the module
itself around as its `policy`.
"""

from __future__ import annotations

import asyncio
import logging
import socket as stdlib
import sys
from collections.abc import Callable
from typing import Any

from fastsock import facade, rendezvous
from fastsock._native import vi
from fastsock._native.aio import CompletionQueue, Origin, Shim, ShimOfBuffered, Transport
from fastsock._native.vi import Endpoint
from fastsock.observability import Path, paths

__all__ = ["Transport", "shim_factory"]

_log = logging.getLogger("asyncio")  # what the loops themselves say goes there
_INTERNET = (stdlib.AF_INET, stdlib.AF_INET6)
_ORIGINS = "_fastsock_origins"
_COUNTS_CLIENTS = sys.version_info >= (3, 13)  # the stdlib's servers know their transports


class PlainShim(Shim, asyncio.Protocol):
    """Below a Protocol."""

    __slots__ = ()


class BufferedShim(ShimOfBuffered, asyncio.BufferedProtocol):
    """Below a BufferedProtocol: asyncio tells the two apart by their class."""

    __slots__ = ()


class StdlibTransport(Transport):
    """On a stdlib loop, whose own transports are instances of asyncio.Transport; uvloop's are not."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # (asyncio.Transport as a base has a slot, which a native class cannot take in)
        return _StdlibTransport


class _StdlibTransport(asyncio.Transport):
    """What a `StdlibTransport` says that it is."""


def shim_factory(loop: Any, protocol_factory: Callable[[], Any], sock: Any = None) -> Callable[[], Shim]:
    """A protocol factory for the loop's own transport: makes the program's protocol with a shim below it. `sock`: the
    socket object that the connection is made of, if the program has it."""
    origin = _origins_of(loop)[sock is not None]

    def factory() -> Shim:
        protocol = protocol_factory()
        buffered = is_buffered(protocol)
        return (BufferedShim if buffered else PlainShim)(origin, protocol, None, buffered)

    return factory


# ---- what the native transport asks -------------------------------------------------------------------------


def is_buffered(protocol: Any) -> bool:
    """Whether a protocol is a BufferedProtocol, by the rule of uvloop, whose SSLProtocol is one by its methods only."""
    return not isinstance(protocol, asyncio.Protocol) and hasattr(protocol, "get_buffer")


def new_shim(transport: Transport, buffered: bool) -> Shim:
    """A shim for a transport whose protocol has become one of the other kind."""
    kind = BufferedShim if buffered else PlainShim
    return kind(transport.origin, transport.get_protocol(), transport, buffered)


def _origins_of(loop: Any) -> tuple[Origin, Origin]:
    """What the transports of a loop have in common, and with it the loop's completion queue, made at its first
    connection: of those that the loop makes by itself, and of those that it makes of a socket object."""
    origins = loop.__dict__.get(_ORIGINS)
    if origins is None:
        queue = CompletionQueue(loop)
        # uvloop connects and accepts natively; the stdlib's loops do it with socket objects, which may have endpoints.
        stdlib = isinstance(loop, asyncio.BaseEventLoop)
        kind = StdlibTransport if stdlib else Transport
        origins = Origin(loop, _policy, queue, kind, stdlib), Origin(loop, _policy, queue, kind, True)
        setattr(loop, _ORIGINS, origins)
    return origins  # type: ignore[no-any-return]


def close_queue(loop: Any) -> None:
    """The loop is about to be closed."""
    origins = loop.__dict__.pop(_ORIGINS, None)
    if origins is not None:
        origins[0].queue.close()


def opened(transport: Transport, lower: Any) -> Endpoint | None:
    """The endpoint that the socket object had before the loop got it; from now on it is the transport's. A server that
    closes its clients is told to close our transport and not the one below it."""
    clients = _clients_of(lower)
    if clients is not None:
        clients.discard(lower)
        clients.add(transport)
    sock = lower.get_extra_info("socket")
    inner = getattr(sock, "_sock", sock)
    endpoint: Endpoint | None = None
    if isinstance(inner, facade.socket):
        # The loop's transport calls the methods of this object, which from now on are the kernel's.
        endpoint, inner._endpoint = inner._endpoint, None
    elif inner is not None and inner.fileno() in vi.tracked():
        endpoint = vi.find(inner.fileno())
    if endpoint is None or endpoint.finished:
        return None
    paths.closed(rendezvous.Reason.FEW)  # counted when the socket was connected
    return endpoint


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


def path_of(endpoint: Endpoint | None) -> Path:
    """The path of a transport's connection."""
    if endpoint is None:
        return Path("tcp", rendezvous.Reason.FEW)
    return rendezvous.path_of_endpoint(endpoint)


def violated(endpoint: Endpoint) -> None:
    """The peer broke the protocol: its connection is reset."""
    rendezvous.report_violation(endpoint, endpoint.reset())


def lost(transport: Transport) -> None:
    """The connection has ended."""
    clients = _clients_of(transport.lower)
    if clients is not None:
        clients.discard(transport)


def _clients_of(lower: Any) -> Any:
    """The set in which the server of a loop's transport keeps it, or None."""
    return getattr(getattr(lower, "_server", None), "_clients", None) if _COUNTS_CLIENTS else None


def ignored_write(before: int) -> None:
    """Somebody writes to a connection that is lost; asyncio warns from the fifth time on."""
    if before >= 5:
        _log.warning("socket.send() raised exception.")


def debug(transport: Transport, message: str) -> None:
    """A connection ended with an OSError in a protocol's callback, and the loop is in debug mode."""
    _log.debug("%r: %s", transport, message, exc_info=True)


_policy = sys.modules[__name__]
