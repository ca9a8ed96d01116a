"""`fastsock.socket`: the stdlib's socket class, for programs that choose which of their sockets are served.

Under `patch()` every socket of the process is served. Without it, those of this class are, what they accept, and their
copies. The calls are the stdlib's own: the front end at the C library's calls serves them.
"""

from __future__ import annotations

import socket as stdlib

from fastsock import path_events
from fastsock._native import libc_front
from fastsock.import_hooks import when_imported

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = ["fromfd", "socket"]


class socket(stdlib.socket):
    """Like `socket.socket`. Connections within this host move to shared memory if both ends use fastsock."""

    __slots__ = ()

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        serves = path_events.serves()  # first: the functions are in place before the descriptor is made
        super().__init__(family, type, proto, fileno)
        if serves:
            libc_front.claim(super().fileno(), fileno is None)

    def accept(self) -> tuple[socket, Any]:
        """Like socket.accept."""
        fd, address = self._accept()  # type: ignore[attr-defined]
        sock = socket(self.family, self.type, self.proto, fileno=fd)
        if stdlib.getdefaulttimeout() is None and self.gettimeout():
            sock.setblocking(True)
        return sock, address


def fromfd(fd: int, family: int, type: int, proto: int = 0) -> socket:
    """Like socket.fromfd: returns a socket on a duplicate of `fd`."""
    return socket(family, type, proto, fileno=stdlib.dup(fd))


def _rebuild(descriptor: Any, family: int, type: int, proto: int) -> socket:
    return socket(family, type, proto, descriptor.detach())


def _teach_pickling(reduction: ModuleType) -> None:
    """Lets `multiprocessing` pass such sockets to other processes, as it does those of the stdlib's class."""
    reduction.register(
        socket, lambda sock: (_rebuild, (reduction.DupFd(sock.fileno()), sock.family, sock.type, sock.proto))
    )


when_imported("multiprocessing.reduction", _teach_pickling)
