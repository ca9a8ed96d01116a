"""Wrappers for uvloop, which makes connections in native code, inside the methods that a program calls.

This module imports uvloop only inside functions: under `patch()` that import needs `wrappers`."""

from __future__ import annotations

import functools
import ssl as tls
from collections.abc import Callable, Coroutine
from typing import Any

from fastsock import path_events
from fastsock._native.relay_protocol import ConnectionFactory, RelayFactory, connecting, made_above
from fastsock._native.transport import Transport
from fastsock._native.transport_socket import show_above

__all__ = ["wrappers"]


class _Tls:
    """TLS above our transport, with uvloop's SSL protocol. Holds the arguments of the loop's method."""

    def __init__(
        self, loop: Any, context: Any, server_side: bool, hostname: str | None, timeouts: dict[str, Any]
    ) -> None:
        self.loop = loop
        self.context = None if isinstance(context, bool) else context
        self.server_side = server_side
        self.hostname = hostname
        self.timeouts = _without_nones(**timeouts)

    def protocol(self, above: Any, waiter: Any = None, call_connection_made: bool = True) -> Any:
        """Returns an SSL protocol below the program's protocol `above`."""
        from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

        return SSLProtocol(
            self.loop,
            above,
            self.context,
            waiter,
            self.server_side,
            self.hostname,
            call_connection_made=call_connection_made,
            **self.timeouts,
        )

    async def connect(
        self, protocol_factory: Any, sock: Any, connecting: Callable[[Any], Coroutine[Any, Any, Any]]
    ) -> tuple[Any, Any]:
        """Makes a connection. Returns (the transport above TLS, the program's protocol). `connecting` takes a protocol
        factory and makes the connection below TLS."""
        waiter = self.loop.create_future()
        protocol = None

        def below() -> Any:
            nonlocal protocol
            protocol = protocol_factory()
            return self.protocol(protocol, waiter)

        factory = ConnectionFactory(self.loop, below, sock)
        transport, ssl_protocol = await made_above(connecting(factory), factory)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return ssl_protocol._get_app_transport(), protocol


def _without_nones(**arguments: Any) -> dict[str, Any]:
    """Returns the arguments without those that are None, as uvloop rejects some of them."""
    return {name: value for name, value in arguments.items() if value is not None}


def _wrap_create_connection(original: Any) -> Any:
    async def create_secured(
        self: Any,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any,
        server_hostname: Any = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        if server_hostname is None and not host:
            raise ValueError("You must set server_hostname when using ssl without a host")
        hostname = host if server_hostname is None else server_hostname
        security = _Tls(self, ssl, False, hostname, _timeouts_from(options))
        return await security.connect(
            protocol_factory, options.get("sock"), lambda factory: original(self, factory, host, port, **options)
        )

    return connecting(original, create_secured)


def _wrap_create_unix_connection(original: Any) -> Any:
    async def create_unix_connection(
        self: Any,
        protocol_factory: Any,
        path: Any = None,
        *,
        ssl: Any = None,
        server_hostname: Any = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        security = {"ssl": ssl, "server_hostname": server_hostname}
        if not path_events.serves_unix() or (ssl and server_hostname is None):
            return await original(self, protocol_factory, path, **security, **options)  # type: ignore[no-any-return]
        sock = options.get("sock")
        if not ssl:
            factory = ConnectionFactory(self, protocol_factory, sock)
            return await made_above(original(self, factory, path, **security, **options), factory)
        above = _Tls(self, ssl, False, server_hostname, _timeouts_from(options))
        return await above.connect(protocol_factory, sock, lambda factory: original(self, factory, path, **options))

    return create_unix_connection


def _timeouts_from(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options.pop(name, None) for name in ("ssl_handshake_timeout", "ssl_shutdown_timeout")}


def _wrap_connect_accepted_socket(original: Any) -> Any:
    def connect_accepted_socket(
        self: Any, protocol_factory: Any, sock: Any, *, ssl: Any = None, **timeouts: Any
    ) -> Coroutine[Any, Any, tuple[Any, Any]]:
        if not path_events.serves():
            return original(self, protocol_factory, sock, ssl=ssl, **timeouts)  # type: ignore[no-any-return]
        if not ssl:
            factory = ConnectionFactory(self, protocol_factory, sock)
            return made_above(original(self, factory, sock, **timeouts), factory)
        security = _Tls(self, ssl, True, "", timeouts)
        return security.connect(protocol_factory, sock, lambda factory: original(self, factory, sock))

    return connect_accepted_socket


def _wrap_create_server(original: Any) -> Any:
    async def create_server(
        self: Any, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **options: Any
    ) -> Any:
        if not path_events.serves() or (ssl is not None and not isinstance(ssl, tls.SSLContext)):
            return await original(self, protocol_factory, host, port, ssl=ssl, **options)
        return await original(self, _relays(self, protocol_factory, ssl, options), host, port, **options)

    return create_server


def _wrap_create_unix_server(original: Any) -> Any:
    async def create_unix_server(
        self: Any, protocol_factory: Any, path: Any = None, *, ssl: Any = None, **options: Any
    ) -> Any:
        if not path_events.serves_unix() or (ssl is not None and not isinstance(ssl, tls.SSLContext)):
            return await original(self, protocol_factory, path, ssl=ssl, **options)
        return await original(self, _relays(self, protocol_factory, ssl, options), path, **options)

    return create_unix_server


def _relays(loop: Any, protocol_factory: Any, context: Any, options: dict[str, Any]) -> RelayFactory:
    """Returns the factory of a server. With a context takes the timeouts of TLS out of the options."""
    if context is None:
        return RelayFactory(loop, protocol_factory)
    security = _Tls(loop, context, True, None, _timeouts_from(options))
    return RelayFactory(loop, lambda: security.protocol(protocol_factory()))


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
        # Paused, so that the SSL protocol gets no data before it knows its transport.
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
        return above._get_app_transport()

    return start_tls


@functools.cache
def wrappers() -> dict[str, Callable[[Any], Any]]:
    """Returns the methods of uvloop.Loop that are replaced, and their wrappers. uvloop must be loaded."""
    from uvloop.loop import PseudoSocket  # type: ignore[attr-defined]

    show_above(PseudoSocket)
    return {
        "create_connection": _wrap_create_connection,
        "connect_accepted_socket": _wrap_connect_accepted_socket,
        "create_server": _wrap_create_server,
        "create_unix_connection": _wrap_create_unix_connection,
        "create_unix_server": _wrap_create_unix_server,
        "start_tls": _wrap_start_tls,
    }
