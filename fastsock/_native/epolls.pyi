"""The class that stands for `select.epoll`, with the setting `ready_on_ring`."""

from typing import Any, final

from fastsock._native.members import EventSet

def number_of(sock: Any) -> int:
    """The descriptor of a socket object that an `epoll` of this module may wait for, which is not handed out by this;
    -1: for any other object."""

@final
class epoll(EventSet):
    """As select.epoll. Connections that have moved to the ring are asked in memory, everything else in the kernel."""

    def __new__(cls, sizehint: int = -1, flags: int = 0) -> epoll: ...
    @classmethod
    def fromfd(cls, fd: int, /) -> epoll:
        """As select.epoll.fromfd."""
    @property
    def closed(self) -> bool:
        """As select.epoll.closed."""
    def close(self) -> None:
        """As select.epoll.close."""
    def fileno(self) -> int:
        """As select.epoll.fileno. Whoever asks may wait for the epoll itself, which the kernel alone makes readable."""
    def register(self, fd: Any, eventmask: int = ...) -> None:
        """As select.epoll.register."""
    def modify(self, fd: Any, eventmask: int) -> None:
        """As select.epoll.modify."""
    def unregister(self, fd: Any) -> None:
        """As select.epoll.unregister."""
    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """As select.epoll.poll."""
    def __enter__(self) -> epoll: ...
    def __exit__(self, exc_type: object = None, exc_value: object = None, exc_tb: object = None, /) -> None: ...
