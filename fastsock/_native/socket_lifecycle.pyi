"""How socket objects get and lose their endpoints. Most functions are methods of fastsock.socket; without an endpoint they call
the stdlib's method."""

from socket import socket
from typing import Any, TypeAlias

from _typeshed import ReadableBuffer

from fastsock._native.registry import Endpoint

_Address: TypeAlias = tuple[Any, ...] | str | ReadableBuffer

def install(type: type[socket]) -> None:
    """Sets the class fastsock.socket, whose slots this module reads and writes. Raises TypeError if slots are missing. The class
    also provides: `_is_tls(sock)`, true for a TLS socket; `_NOTED`, the (level, option) pairs reported to `_note_option`;
    `_leave_rights(ancdata)`, called before ancillary data is sent."""

def may_move(self: socket) -> bool:
    """Returns true if the socket's connection may move: TCP over IP, no TLS, and fastsock is enabled. Raises TypeError if it is
    not a fastsock.socket."""

def new_endpoint(self: socket) -> Endpoint | None:
    """Creates an endpoint for the socket. Returns it, or None if the socket has one or its connection may not move."""

def begin_connecting(self: socket, address: Any = None) -> None:
    """Creates an endpoint, if the connection may move, while a connect to `address` is in progress. Without `address` the socket
    may also be connected already."""

def init(self: socket, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
    """Like socket.__init__. With `fileno` the connection is taken over."""

def connect(self: socket, address: _Address, /) -> None:
    """Like socket.connect."""

def connect_ex(self: socket, address: _Address, /) -> int:
    """Like socket.connect_ex."""

def fileno(self: socket) -> int:
    """Like socket.fileno. The program may poll the descriptor, so from now on it is readable while the ring has data."""

def endpoint_now(self: socket) -> Endpoint | None:
    """Returns the endpoint of the connection that the socket's descriptor means now, or None."""

def real_close(self: socket, *arguments: Any) -> None:
    """Like socket._real_close."""

def finalize(self: socket) -> None:
    """Like socket.__del__."""

def note_timeout(self: socket) -> None:
    """Reads the socket's timeout after a change."""

def settimeout(self: socket, value: float | None, /) -> None:
    """Like socket.settimeout."""

def setblocking(self: socket, flag: bool, /) -> None:
    """Like socket.setblocking."""

def setsockopt(self: socket, level: int, option: int, *arguments: Any) -> None:
    """Like socket.setsockopt. Options that affect the data also apply to the ring."""

def getsockopt(self: socket, level: int, option: int, *arguments: Any) -> Any:
    """Like socket.getsockopt."""

def accept(self: socket) -> tuple[socket, Any]:
    """Like socket.accept."""
