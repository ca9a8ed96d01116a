"""The data methods of fastsock.socket. Each has the semantics of the stdlib's method. Connections on the ring, or with an
undecided path, are handled here."""

from collections.abc import Iterable
from socket import socket
from typing import Any, TypeAlias

from _typeshed import ReadableBuffer, WriteableBuffer

_Address: TypeAlias = tuple[Any, ...] | str | ReadableBuffer
_Ancillary: TypeAlias = tuple[int, int, ReadableBuffer]

def recv(self: socket, bufsize: int, flags: int = 0, /) -> bytes:
    """Like socket.recv."""

def recvfrom(self: socket, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
    """Like socket.recvfrom. TCP gives no address."""

def recv_into(self: socket, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
    """Like socket.recv_into."""

def recvfrom_into(self: socket, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
    """Like socket.recvfrom_into."""

def recvmsg(
    self: socket, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
    """Like socket.recvmsg. TCP has no ancillary data."""

def recvmsg_into(
    self: socket, buffers: Iterable[WriteableBuffer], ancbufsize: int = 0, flags: int = 0, /
) -> tuple[int, list[tuple[int, int, bytes]], int, Any]:
    """Like socket.recvmsg_into."""

def send(self: socket, data: ReadableBuffer, flags: int = 0, /) -> int:
    """Like socket.send."""

def sendall(self: socket, data: ReadableBuffer, flags: int = 0, /) -> None:
    """Like socket.sendall. The connection may move to the ring during a long send."""

def sendto(self: socket, *args: Any) -> int:
    """Like socket.sendto(data, address) or (data, flags, address). A connected TCP socket ignores the address."""

def sendmsg(
    self: socket,
    buffers: Iterable[ReadableBuffer],
    ancdata: Iterable[_Ancillary] = (),
    flags: int = 0,
    address: _Address | None = None,
    /,
) -> int:
    """Like socket.sendmsg."""

def send_file(self: socket, file: int, offset: int, count: int, /) -> int:
    """Like os.sendfile, for socket.sendfile; waits according to the socket's timeout."""
