"""From a socket object to its endpoint: how it gets one and loses it. Most of these are methods of the facade's class, each as
the stdlib's method of the same name; without an endpoint it is that method and nothing else."""

from socket import socket
from typing import Any, TypeAlias

from _typeshed import ReadableBuffer

from fastsock._native.registry import Endpoint

_Address: TypeAlias = tuple[Any, ...] | str | ReadableBuffer

def install(type: type[socket]) -> None:
    """Tells this module the facade's class, whose slots it reads and sets itself (TypeError without them). The class also says
    what Python knows, in names that no class of a program overrides: `_is_tls` (whether a socket of a derived class is TLS's),
    `_NOTED` (the options, level and number, that `_note_option` hears of), `_give_back` (gives back our descriptors when the
    program is out of them: whether there were any), `_leave_rights` (hears of ancillary data about to be sent, a list) and
    `_report_violation` (called with the endpoint and what was wrong)."""

def may_move(self: socket) -> bool:
    """Whether a socket's connection may move: TCP over IP, no TLS, and fastsock is on. TypeError if it is no
    fastsock.socket."""

def new_endpoint(self: socket) -> Endpoint | None:
    """Gives the socket an endpoint and returns it; None if it has one, or its connection may not move."""

def begin_connecting(self: socket, address: Any = None) -> None:
    """A connect to `address` is under way, or, without one, it is not known whether the socket is connected: it gets its endpoint if
    its connection may move."""

def init(self: socket, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
    """As socket.__init__. With `fileno` the connection behind it is taken over."""

def connect(self: socket, address: _Address, /) -> None:
    """As socket.connect."""

def connect_ex(self: socket, address: _Address, /) -> int:
    """As socket.connect_ex."""

def fileno(self: socket) -> int:
    """As socket.fileno. Whoever asks may poll the number, so from now on it shows what lies in the ring."""

def endpoint_now(self: socket) -> Endpoint | None:
    """The endpoint of what the socket's number means now."""

def real_close(self: socket, *arguments: Any) -> None:
    """As socket._real_close."""

def finalize(self: socket) -> None:
    """As socket.__del__."""

def note_timeout(self: socket) -> None:
    """The timeout has changed."""

def settimeout(self: socket, value: float | None, /) -> None:
    """As socket.settimeout."""

def setblocking(self: socket, flag: bool, /) -> None:
    """As socket.setblocking."""

def setsockopt(self: socket, level: int, option: int, *arguments: Any) -> None:
    """As socket.setsockopt: the kernel's own, and honoured on the ring where it changes how data flows."""

def getsockopt(self: socket, level: int, option: int, *arguments: Any) -> Any:
    """As socket.getsockopt."""

def accept(self: socket) -> tuple[socket, Any]:
    """As socket.accept."""
