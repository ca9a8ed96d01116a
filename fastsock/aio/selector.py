"""The stdlib's loops: there all stream connections are made by two methods, under TLS and elsewhere."""

from __future__ import annotations

from asyncio import sslproto
from collections.abc import Callable
from typing import Any

from fastsock import config, rendezvous
from fastsock._native.aio import may_move, shim_of_socket

__all__ = ["WRAPPERS"]


def _wrap_make_socket_transport(original: Any) -> Any:
    def _make_socket_transport(
        self: Any, sock: Any, protocol: Any, waiter: Any = None, *, extra: Any = None, server: Any = None
    ) -> Any:
        shim = shim_of_socket(self, protocol, sock)
        if shim is None:
            return original(self, sock, protocol, waiter, extra=extra, server=server)
        lower = original(self, sock, shim, waiter, extra=extra, server=server)
        # From Python 3.13 on a server knows its transports.
        return shim.above(lower, None if server is None else getattr(server, "_clients", None))

    return _make_socket_transport


def _wrap_make_ssl_transport(original: Any) -> Any:
    def _make_ssl_transport(
        self: Any,
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
        who: dict[str, Any] = {"server_side": server_side, "server_hostname": server_hostname}
        if not may_move(rawsock):
            return original(self, rawsock, protocol, sslcontext, waiter, **who, extra=extra, server=server, **timeouts)
        # As the original, which makes the transport below by its class.
        above = sslproto.SSLProtocol(self, protocol, sslcontext, waiter, **who, **timeouts)
        self._make_socket_transport(rawsock, above, extra=extra, server=server)
        if hasattr(above, "_get_app_transport"):
            return above._get_app_transport()
        return above._app_transport  # Python 3.10

    return _make_ssl_transport


def _wrap_create_server(original: Any) -> Any:
    async def create_server(self: Any, *arguments: Any, **options: Any) -> Any:
        server = await original(self, *arguments, **options)
        if config.active().enabled:
            rendezvous.ensure_thread()
        return server

    return create_server


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "_make_socket_transport": _wrap_make_socket_transport,
    "_make_ssl_transport": _wrap_make_ssl_transport,
    "create_server": _wrap_create_server,
}
"""What is replaced in asyncio.selector_events.BaseSelectorEventLoop."""
