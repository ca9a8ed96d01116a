"""Wrappers for the stdlib's loops, which make all stream connections with two methods: one for TLS, one without."""

from __future__ import annotations

from asyncio import sslproto
from collections.abc import Callable
from typing import Any

from fastsock._native.relay_protocol import making_of_socket, may_move

__all__ = ["WRAPPERS"]


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
        options: dict[str, Any] = {"server_side": server_side, "server_hostname": server_hostname}
        below: dict[str, Any] = {"extra": extra, "server": server}
        if "context" in timeouts:  # from Python 3.15 on: the context of the transport's callbacks
            below["context"] = timeouts.pop("context")
        if not may_move(rawsock):
            return original(self, rawsock, protocol, sslcontext, waiter, **options, **below, **timeouts)
        # As the original does, but with self._make_socket_transport, which is wrapped.
        above = sslproto.SSLProtocol(self, protocol, sslcontext, waiter, **options, **timeouts)
        self._make_socket_transport(rawsock, above, **below)
        if hasattr(above, "_get_app_transport"):
            return above._get_app_transport()
        return above._app_transport  # Python 3.10

    return _make_ssl_transport


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "_make_socket_transport": making_of_socket,
    "_make_ssl_transport": _wrap_make_ssl_transport,
}
"""Methods of asyncio.selector_events.BaseSelectorEventLoop that are replaced, and their wrappers."""
