"""The calls of `os` on a descriptor that is a connection of ours. Each does what the call of the same name does."""

from collections.abc import Callable, Iterable
from typing import Any

from _typeshed import ReadableBuffer, WriteableBuffer

def read(fd: int, n: int, /) -> bytes:
    """As os.read."""

def readable(fd: int, timeout: int, /) -> bool | None:
    """Whether a read of `fd` would not block within `timeout` nanoseconds (-1: without end), as `poll` says it; the number
    need not be handed out for this. None: the kernel has to be asked, which is right for this descriptor."""

def readinto(fd: int, buffer: WriteableBuffer, /) -> int:
    """As os.readinto, which there is from Python 3.14 on."""

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
    """As os.dup2. A connection that gets a number which somebody has already leaves the ring."""

def watch_raw(descriptor: Callable[[int], None] | None, system: Callable[[], None] | None) -> None:
    """Has `descriptor` called with a connection's descriptor before a file object is made on it, a file object's number comes to
    mean it or C code copies it, and `system` before the shell of os.system inherits descriptors. None: no more."""
