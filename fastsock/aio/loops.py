"""Event loops whose TCP connections may move to the ring.

The methods of a loop that make transports are wrapped: the loop's own method does what it always does, with a shim
below the program's protocol, and the program gets our transport instead of the loop's. `patch()` puts the wrapped
methods into the loop classes; `new_event_loop` makes a loop of a subclass that has them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl as tls
import sys
import types
from asyncio import sslproto
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastsock import config, facade, rendezvous
from fastsock.aio.transports import Transport, close_queue, shim_factory

__all__ = ["EventLoopPolicy", "methods_for", "new_event_loop", "run"]

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop
SENDFILE_PIECE = 262144  # bytes read from the file and written at once


# ---- making loops ------------------------------------------------------------------------------------------


def new_event_loop(loop: str = "uvloop") -> Loop:
    """A new event loop with the asyncio layer: uvloop's, or the stdlib's selector loop (`"asyncio"`).

    Fit for `asyncio.Runner(loop_factory=fastsock.new_event_loop)`. ValueError for another name."""
    _check(loop)
    if loop == "asyncio":
        return _class_above(asyncio.SelectorEventLoop)()  # type: ignore[no-any-return]
    import uvloop

    return _class_above(uvloop.Loop)()  # type: ignore[no-any-return]


def _check(loop: str) -> None:
    if loop not in ("uvloop", "asyncio"):
        raise ValueError(f"loop is {loop!r}, but must be 'uvloop' or 'asyncio'")


@functools.cache
def _class_above(base: type) -> type:
    return type("EventLoop", (base,), {"__doc__": "A loop with the asyncio layer.", **methods_for(base)})


def run(main: Coroutine[Any, Any, T], *, loop: str = "uvloop", debug: bool | None = None) -> T:
    """As `asyncio.run`, on a loop of `new_event_loop(loop)`."""
    if sys.version_info >= (3, 11):
        with asyncio.Runner(debug=debug, loop_factory=functools.partial(new_event_loop, loop)) as runner:
            return runner.run(main)
    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(EventLoopPolicy(loop))
    try:
        return asyncio.run(main, debug=debug)
    finally:
        asyncio.set_event_loop_policy(policy)


class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """For programs that install a policy: `asyncio.set_event_loop_policy(fastsock.EventLoopPolicy())`.

    ValueError for a loop that `new_event_loop` does not know."""

    def __init__(self, loop: str = "uvloop") -> None:
        _check(loop)
        super().__init__()
        self._loop = loop

    def new_event_loop(self) -> Loop:
        """A loop of `fastsock.new_event_loop`."""
        return new_event_loop(self._loop)


# ---- TLS ---------------------------------------------------------------------------------------------------


class _Tls:
    """TLS above our transport: the loop's own SSL protocol, with the arguments that a method was given."""

    def __init__(
        self, loop: Any, context: Any, server_side: bool, hostname: str | None, timeouts: dict[str, Any]
    ) -> None:
        self.loop = loop
        self.context = None if isinstance(context, bool) else context
        self.server_side = server_side
        self.hostname = hostname
        self.timeouts = {name: value for name, value in timeouts.items() if value is not None}
        uvloop = sys.modules.get("uvloop")
        native = uvloop is not None and isinstance(loop, uvloop.Loop)
        self.kind: Any = uvloop.loop.SSLProtocol if native else sslproto.SSLProtocol  # type: ignore[union-attr]

    def protocol(self, above: Any, waiter: Any = None, call_connection_made: bool = True) -> Any:
        """An SSL protocol below the program's protocol `above`."""
        return self.kind(
            self.loop,
            above,
            self.context,
            waiter,
            self.server_side,
            self.hostname,
            call_connection_made=call_connection_made,
            **self.timeouts,
        )


def _secures_itself(loop: Any) -> bool:
    """Whether the loop's own methods put TLS above a transport of ours, and so see to their arguments: the stdlib's."""
    if not isinstance(loop, asyncio.BaseEventLoop):
        return False
    if "_make_ssl_transport" not in loop.__dict__:
        loop._make_ssl_transport = types.MethodType(_make_ssl_transport, loop)  # type: ignore[attr-defined]
    return True


def _make_ssl_transport(
    loop: Any,
    rawsock: Any,
    protocol: Any,
    sslcontext: Any,
    waiter: Any = None,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    extra: Any = None,
    server: Any = None,
    **timeouts: Any,
) -> Any:
    """As that of the stdlib's selector loop, with a shim below the SSL protocol."""
    security = _Tls(loop, sslcontext, server_side, server_hostname, timeouts)
    above = security.protocol(protocol, waiter)
    loop._make_socket_transport(rawsock, shim_factory(loop, lambda: above, rawsock)(), extra=extra, server=server)
    return _transport_above(above)


def _transport_above(ssl_protocol: Any) -> Any:
    if hasattr(ssl_protocol, "_get_app_transport"):
        return ssl_protocol._get_app_transport()
    return ssl_protocol._app_transport  # Python 3.10


# ---- the methods -------------------------------------------------------------------------------------------


@functools.cache
def methods_for(base: Any) -> dict[str, Callable[..., Any]]:
    """The wrapped methods for a loop class, by name. What is wrapped already (`patch()` has been here, and `base`
    inherits it) is wrapped anew from the loop's own method, not twice."""
    methods: dict[str, Callable[..., Any]] = {}
    for name, wrap in WRAPPERS.items():
        own = getattr(base, name)
        own = _own_methods.get(own, own)
        methods[name] = functools.wraps(own)(wrap(own))
        _own_methods[methods[name]] = own
    return methods


_own_methods: dict[Any, Any] = {}  # wrapped method -> the loop's own


def _without_nones(**arguments: Any) -> dict[str, Any]:
    """The arguments that were given: Python 3.10 does not know them all."""
    return {name: value for name, value in arguments.items() if value is not None}


def _wrap_create_connection(original: Any) -> Any:
    async def create_connection(
        self: Any,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        server_hostname: Any = None,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        timeouts = {"ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if not config.active().enabled:
            options |= _without_nones(ssl=ssl, server_hostname=server_hostname, **timeouts)
            return await original(self, protocol_factory, host, port, **options)  # type: ignore[no-any-return]
        if ssl and _secures_itself(self):
            options |= _without_nones(ssl=ssl, server_hostname=server_hostname, **timeouts)
            return await original(self, protocol_factory, host, port, **options)  # type: ignore[no-any-return]
        if not ssl:
            if not server_hostname is ssl_handshake_timeout is ssl_shutdown_timeout is None:
                # Only meaningful with ssl: the loop's own method refuses it in its own words.
                options |= _without_nones(server_hostname=server_hostname, **timeouts)
            factory = shim_factory(self, protocol_factory, options.get("sock"))
            _, shim = await original(self, factory, host, port, **options)
            return shim.transport, shim.protocol
        if server_hostname is None and not host:
            raise ValueError("You must set server_hostname when using ssl without a host")
        hostname = host if server_hostname is None else server_hostname
        security = _Tls(self, ssl, False, hostname, timeouts)
        return await _secured(
            self,
            security,
            protocol_factory,
            options.get("sock"),
            lambda factory: original(self, factory, host, port, **options),
        )

    return create_connection


def _wrap_connect_accepted_socket(original: Any) -> Any:
    async def connect_accepted_socket(
        self: Any,
        protocol_factory: Any,
        sock: Any,
        *,
        ssl: Any = None,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
    ) -> tuple[Any, Any]:
        timeouts = {"ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if not config.active().enabled:
            options = _without_nones(ssl=ssl, **timeouts)
            return await original(self, protocol_factory, sock, **options)  # type: ignore[no-any-return]
        if ssl and _secures_itself(self):
            options = _without_nones(ssl=ssl, **timeouts)
            return await original(self, protocol_factory, sock, **options)  # type: ignore[no-any-return]
        if not ssl:
            factory = shim_factory(self, protocol_factory, sock)
            _, shim = await original(self, factory, sock, **_without_nones(**timeouts))
            return shim.transport, shim.protocol
        security = _Tls(self, ssl, True, "", timeouts)
        return await _secured(self, security, protocol_factory, sock, lambda factory: original(self, factory, sock))

    return connect_accepted_socket


async def _secured(loop: Any, security: _Tls, protocol_factory: Any, sock: Any, connect: Any) -> tuple[Any, Any]:
    """A connection with TLS: (the transport above it, the program's protocol)."""
    waiter = loop.create_future()
    protocol = None

    def below() -> Any:
        nonlocal protocol
        protocol = protocol_factory()
        return security.protocol(protocol, waiter)

    _, shim = await connect(shim_factory(loop, below, sock))
    try:
        await waiter
    except BaseException:
        shim.transport.close()
        raise
    return _transport_above(shim.protocol), protocol


def _wrap_create_server(original: Any) -> Any:
    async def create_server(
        self: Any,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
        **options: Any,
    ) -> Any:
        timeouts = {"ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if not config.active().enabled or (ssl is not None and not isinstance(ssl, tls.SSLContext)):
            options |= _without_nones(ssl=ssl, **timeouts)
            return await original(self, protocol_factory, host, port, **options)
        if ssl is None:
            options |= _without_nones(**timeouts)
            factory = protocol_factory
        elif _secures_itself(self):
            options |= _without_nones(ssl=ssl, **timeouts)
            server = await original(self, protocol_factory, host, port, **options)
            rendezvous.ensure_thread()
            return server
        else:
            security = _Tls(self, ssl, True, None, timeouts)

            def factory() -> Any:
                return security.protocol(protocol_factory())

        server = await original(self, shim_factory(self, factory), host, port, **options)
        rendezvous.ensure_thread()
        return server

    return create_server


def _wrap_start_tls(original: Any) -> Any:
    async def start_tls(
        self: Any,
        transport: Any,
        protocol: Any,
        sslcontext: Any,
        *,
        server_side: bool = False,
        server_hostname: Any = None,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
    ) -> Any:
        timeouts = {"ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if not isinstance(transport, Transport) or not isinstance(sslcontext, tls.SSLContext):
            options = _without_nones(server_hostname=server_hostname, **timeouts)
            return await original(self, transport, protocol, sslcontext, server_side=server_side, **options)
        waiter = self.create_future()
        security = _Tls(self, sslcontext, server_side, server_hostname, timeouts)
        above = security.protocol(protocol, waiter, call_connection_made=False)
        # Paused, so that nothing reaches the SSL protocol before it knows its transport.
        transport.pause_reading()
        transport.set_protocol(above)
        made = self.call_soon(above.connection_made, transport)
        resume = self.call_soon(transport.resume_reading)
        try:
            await waiter
        except BaseException:
            transport.close()
            made.cancel()
            resume.cancel()
            raise
        return _transport_above(above)

    return start_tls


def _wrap_sendfile(original: Any) -> Any:
    async def sendfile(
        self: Any, transport: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True
    ) -> int:
        if not isinstance(transport, Transport):
            return await original(self, transport, file, offset, count, fallback=fallback)  # type: ignore[no-any-return]
        if transport.is_closing():
            raise RuntimeError("Transport is closing")
        if transport.on_kernel and isinstance(self, asyncio.BaseEventLoop):
            # The kernel's own sendfile. Until it is done the loop's transport refuses to write.
            transport.sends_file = True
            try:
                return await original(self, transport.lower, file, offset, count, fallback=False)  # type: ignore[no-any-return]
            except asyncio.SendfileNotAvailableError:
                if not fallback:
                    raise
            finally:
                transport.sends_file = False
        elif not fallback:
            _require_regular(file)
        return await _send_file(self, transport, file, offset, count)

    return sendfile


_NO_NATIVE_SENDFILE = asyncio.BaseEventLoop._sock_sendfile_native  # type: ignore[attr-defined]


def _wrap_sock_sendfile(original: Any) -> Any:
    async def sock_sendfile(
        self: Any, sock: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool | None = None
    ) -> int:
        endpoint = sock._endpoint if isinstance(sock, facade.socket) else None
        refuses = fallback is False and getattr(type(self), "_sock_sendfile_native", None) is _NO_NATIVE_SENDFILE
        if refuses or endpoint is None or not (endpoint.attached or endpoint.step is not None):
            options = _without_nones(fallback=fallback)
            return await original(self, sock, file, offset, count, **options)  # type: ignore[no-any-return]
        # The kernel's sendfile would write past the ring.
        if isinstance(self, asyncio.BaseEventLoop):
            self._check_sendfile_params(sock, file, offset, count)  # type: ignore[attr-defined]
        if fallback is False:
            _require_regular(file)
        return await _send_pieces(self, file, offset, count, lambda piece: self.sock_sendall(sock, piece))

    return sock_sendfile


def _require_regular(file: Any) -> None:
    """What the kernel's sendfile takes. SendfileNotAvailableError for anything else."""
    try:
        os.fstat(file.fileno())
    except (AttributeError, OSError):  # (io.UnsupportedOperation is an OSError)
        raise asyncio.SendfileNotAvailableError("not a regular file") from None


class _Drain(asyncio.Protocol):
    """Stands in for the program's protocol while a file is sent, and waits for room."""

    def __init__(self, loop: Any, transport: Transport) -> None:
        self.loop = loop
        self.transport = transport
        self.protocol = transport.get_protocol()
        self.reads = transport.is_reading()
        self.room: asyncio.Future[None] | None = loop.create_future() if transport._protocol_paused else None
        transport.pause_reading()
        transport.set_protocol(self)

    async def drain(self) -> None:
        if self.transport.is_closing():
            raise ConnectionError("Connection closed by peer")
        if self.room is not None:
            await self.room

    def pause_writing(self) -> None:
        if self.room is None:
            self.room = self.loop.create_future()

    def resume_writing(self) -> None:
        if self.room is not None:
            self.room.set_result(None)
            self.room = None

    def connection_lost(self, error: Exception | None) -> None:
        if self.room is not None:
            self.room.set_exception(error or ConnectionError("Connection is closed by peer"))
            self.room = None
        self.protocol.connection_lost(error)

    def restore(self) -> None:
        paused = self.room is not None
        if self.room is not None:
            self.room.cancel()
        self.transport.set_protocol(self.protocol)
        if self.reads:
            self.transport.resume_reading()
        if paused:
            self.protocol.pause_writing()


async def _send_file(loop: Any, transport: Transport, file: Any, offset: int, count: int | None) -> int:
    """As asyncio's own fallback. The number of bytes written."""
    drain = _Drain(loop, transport)

    async def write(piece: bytes) -> None:
        await drain.drain()
        transport.write(piece)

    try:
        return await _send_pieces(loop, file, offset, count, write)
    finally:
        drain.restore()


async def _send_pieces(
    loop: Any, file: Any, offset: int, count: int | None, send: Callable[[bytes], Coroutine[Any, Any, None]]
) -> int:
    """Reads pieces in the executor and sends them. The number of bytes sent; the file's position is behind them."""
    if hasattr(file, "seek"):
        file.seek(offset)
    total = 0
    try:
        while count is None or total < count:
            size = SENDFILE_PIECE if count is None else min(SENDFILE_PIECE, count - total)
            piece = await loop.run_in_executor(None, file.read, size)
            if not piece:
                break
            await send(piece)
            total += len(piece)
        return total
    finally:
        if total > 0 and hasattr(file, "seek"):
            file.seek(offset + total)


def _wrap_close(original: Any) -> Any:
    def close(self: Any) -> None:
        if not self.is_running():
            close_queue(self)
        original(self)

    return close


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "create_connection": _wrap_create_connection,
    "connect_accepted_socket": _wrap_connect_accepted_socket,
    "create_server": _wrap_create_server,
    "start_tls": _wrap_start_tls,
    "sendfile": _wrap_sendfile,
    "sock_sendfile": _wrap_sock_sendfile,
    "close": _wrap_close,
}
"""What is replaced in a loop class."""
