"""The completion queue of one loop, and what it knows of the transports that it polls."""

import asyncio

from fastsock._native.endpoint import Endpoint

class QueuedConnection:
    """A connection of a loop, as the queue sees it."""

class CompletionQueue:
    """Polls the hot connections of one loop and delivers what came; arms the quiet ones."""

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> CompletionQueue: ...
    @property
    def epoll(self) -> int:
        """The descriptor of its event set, which the loop watches; -1: none yet."""
    @property
    def begun(self) -> set[QueuedConnection]:
        """Transports with an endpoint."""
    def admit(self, endpoint: Endpoint, /) -> None:
        """An endpoint of this queue is about to attach, and gets a place in the event set. OSError if that cannot be."""
    def keep_late(self, place: int, data: bytes, /) -> None:
        """Of the endpoint that has this place and leaves the ring: bytes that are not in the kernel's queue again."""
    def dismiss(self, endpoint: Endpoint, /) -> None:
        """The endpoint has not attached, or goes."""
    def close(self) -> None:
        """The loop is about to be closed: its connections end with their transports."""
    def wake(self) -> None:
        """The loop's callback for the event set's descriptor: somebody has told it."""
    def probe(self) -> None:
        """The queue's timer, while there is something to watch."""
    def turn(self) -> None:
        """The queue's callback in a turn of the loop."""
