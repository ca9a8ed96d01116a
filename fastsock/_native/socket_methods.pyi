"""The data calls, as the facade's class has them. Each does what the stdlib's call of the same name does; on a connection that
is on the ring, or whose path is undecided, it is driven here."""

from collections.abc import Iterable
from socket import socket
from typing import Any, TypeAlias

from _typeshed import ReadableBuffer, WriteableBuffer

_Address: TypeAlias = tuple[Any, ...] | str | ReadableBuffer
_Ancillary: TypeAlias = tuple[int, int, ReadableBuffer]

def recv(self: socket, bufsize: int, flags: int = 0, /) -> bytes:
    """As socket.recv."""

def recvfrom(self: socket, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
    """As socket.recvfrom: a TCP socket tells no address."""

def recv_into(self: socket, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
    """As socket.recv_into."""

def recvfrom_into(self: socket, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
    """As socket.recvfrom_into."""

def recvmsg(
    self: socket, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
    """As socket.recvmsg: a TCP stream carries no ancillary data."""

def recvmsg_into(
    self: socket, buffers: Iterable[WriteableBuffer], ancbufsize: int = 0, flags: int = 0, /
) -> tuple[int, list[tuple[int, int, bytes]], int, Any]:
    """As socket.recvmsg_into."""

def send(self: socket, data: ReadableBuffer, flags: int = 0, /) -> int:
    """As socket.send."""

def sendall(self: socket, data: ReadableBuffer, flags: int = 0, /) -> None:
    """As socket.sendall. A long one may move to the ring on its way."""

def sendto(self: socket, *args: Any) -> int:
    """As socket.sendto(data, address) or (data, flags, address): a connected TCP socket does not look at the address."""

def sendmsg(
    self: socket,
    buffers: Iterable[ReadableBuffer],
    ancdata: Iterable[_Ancillary] = (),
    flags: int = 0,
    address: _Address | None = None,
    /,
) -> int:
    """As socket.sendmsg."""

def send_file(self: socket, file: int, offset: int, count: int, /) -> int:
    """As os.sendfile on the socket's number, for socket.sendfile; but it waits as the socket does."""
