"""`multiprocessing.connection` over TCP: its connections stay on the ring.

A `Connection` is made of a descriptor that a socket has detached, and uses `os.read` and `os.write` on it. For us a
detached descriptor is one that somebody reads who knows nothing of the ring. So with patch() the two functions that
make such connections keep ours where it is, and give out a `Connection` that reads and writes with our calls, also
after unpatch(), and however early the module was imported.
"""

from __future__ import annotations

import time
from types import ModuleType

from fastsock import path_events
from fastsock._native import os_calls, registry

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["keep", "let_be"]

_originals: dict[str, Any] = {}


def keep(module: ModuleType) -> None:
    """`multiprocessing.connection` is there: from now on its connections over TCP stay on the ring."""
    plain: Any = module.Connection
    listener: Any = module.SocketListener

    class Connection(plain):  # type: ignore[misc]
        """A message-oriented connection whose bytes take the ring."""

        def _send(self, buf: Any, write: Any = os_calls.write) -> None:
            plain._send(self, buf, write)

        def _recv(self, size: int, read: Any = os_calls.read) -> Any:
            return plain._recv(self, size, read)

        def _close(self, _close: Any = os_calls.close) -> None:
            plain._close(self, _close)

        def _poll(self, timeout: float | None) -> bool:
            nanoseconds = -1 if timeout is None else max(0, round(timeout * 1e9))
            began = time.monotonic_ns()
            ready = os_calls.readable(self._handle, nanoseconds)
            if ready is None:
                if timeout is not None:
                    timeout = max(0.0, timeout - (time.monotonic_ns() - began) / 1e9)
                ready = bool(module.wait([self._handle], timeout))
            return ready

        def fileno(self) -> int:
            """As Connection.fileno. Whoever asks may poll the number: it shows what lies in the ring from now on."""
            fd: int = plain.fileno(self)
            endpoint = registry.find(fd)
            if endpoint is not None:
                endpoint.expose()
            return fd

        def fastsock_path(self) -> Any:
            """What `path_of` says of it."""
            endpoint = None if self._handle is None else registry.find(self._handle)
            return None if endpoint is None else path_events.path_from(endpoint.standing)

    Connection.__qualname__, Connection.__module__ = plain.__qualname__, plain.__module__
    module.reduction.register(Connection, module.reduce_connection)

    def made_of(sock: Any) -> Any:
        # (A listener that was made before patch() gives out the stdlib's sockets.)
        fd = sock._keep_number() if hasattr(sock, "_keep_number") else -1
        return Connection(fd) if fd >= 0 else plain(sock.detach())

    def accept(self: Any) -> Any:
        sock, self._last_accepted = self._socket.accept()
        sock.setblocking(True)
        return made_of(sock)

    def connect(address: Any) -> Any:
        with module.socket.socket(getattr(module.socket, module.address_type(address))) as sock:
            sock.setblocking(True)
            sock.connect(address)
            return made_of(sock)

    for replacement, original in ((accept, listener.accept), (connect, module.SocketClient)):
        replacement.__name__, replacement.__qualname__ = original.__name__, original.__qualname__
        replacement.__module__, replacement.__doc__ = original.__module__, original.__doc__
    _originals.update(accept=listener.accept, SocketClient=module.SocketClient)
    listener.accept, module.SocketClient = accept, connect  # type: ignore[attr-defined]


def let_be(module: ModuleType) -> None:
    """The end of it. Connections that exist go on as they are."""
    module.SocketListener.accept, module.SocketClient = _originals["accept"], _originals["SocketClient"]  # type: ignore[attr-defined]
