"""The data calls of the facade and of `os`. Each does what the stdlib's call of the same name does; on a connection that
is on the ring, or whose path is undecided, it is driven here. The first group are methods of the facade's class."""

from collections.abc import Callable, Collection, Iterable
from socket import socket
from typing import Any, TypeAlias

from _typeshed import ReadableBuffer, WriteableBuffer

from fastsock._native.vi import Endpoint

_Address: TypeAlias = tuple[Any, ...] | str | ReadableBuffer
_Ancillary: TypeAlias = tuple[int, int, ReadableBuffer]

def install(
    type: type[socket],
    violation: Callable[[Endpoint, str], None],
    rights: Callable[[list[Any]], None],
    tls: Callable[[socket], bool],
    options: Collection[tuple[int, int]],
    descriptors: Callable[[], bool],
) -> None:
    """Tells this module the facade's class, whose slots it reads and sets itself (TypeError without them), whom to tell
    of violations (called with the endpoint and what was wrong), whom of ancillary data about to be sent, what
    knows whether a socket of a derived class is TLS's, and which options (level, number) its `_note_option` hears
    of."""

def may_move(self: socket) -> bool:
    """Whether a socket's connection may move: TCP over IP, no TLS, and fastsock is on. TypeError if it is no
    fastsock.socket."""

def new_endpoint(self: socket) -> Endpoint | None:
    """Gives the socket an endpoint and returns it; None if it has one, or its connection may not move."""

def begin_connecting(self: socket) -> None:
    """A connect is under way, or it is not known whether the socket is connected: it gets its endpoint if its connection may
    move."""

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

def read(fd: int, n: int, /) -> bytes:
    """As os.read."""

def readv(fd: int, buffers: Iterable[WriteableBuffer], /) -> int:
    """As os.readv."""

def write(fd: int, data: ReadableBuffer, /) -> int:
    """As os.write."""

def writev(fd: int, buffers: Iterable[ReadableBuffer], /) -> int:
    """As os.writev."""

def sendfile(out_fd: int, in_fd: int, offset: int | None, count: int, *args: Any, **kwargs: Any) -> int:
    """As os.sendfile."""

def close(fd: int) -> None:
    """As os.close."""

def close_socket(fd: int, /) -> None:
    """As the function socket.close, which takes a number."""

def closerange(fd_low: int, fd_high: int, /) -> None:
    """As os.closerange."""

def dup(fd: int, /) -> int:
    """As os.dup: the new descriptor belongs to the same endpoint."""

def dup2(fd: int, fd2: int, inheritable: bool = True) -> int:
    """As os.dup2."""

def watch_files(on_descriptor: Callable[[int], None] | None) -> None:
    """Has `on_descriptor` called with a connection's descriptor before a file object is made on it; None: no more."""
