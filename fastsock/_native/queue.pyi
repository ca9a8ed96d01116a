"""The completion queue of one loop, and what it knows of the transports that it polls."""

import asyncio

class Driven:
    """A connection of a loop, as the queue sees it."""

class CompletionQueue:
    """Polls the hot connections of one loop and delivers what came; arms the quiet ones."""

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> CompletionQueue: ...
    @property
    def epoll(self) -> int:
        """The epoll descriptor that the loop watches; -1: none yet."""
    @property
    def begun(self) -> set[Driven]:
        """Transports with an endpoint."""
    def watch_eventfd(self, fd: int, /) -> None:
        """An endpoint of this queue is about to attach, and will sleep on this eventfd. OSError if that cannot be."""
    def keep_late(self, eventfd: int, data: bytes, /) -> None:
        """Of the endpoint that sleeps on this eventfd and leaves the ring: bytes that are not in the kernel's queue again."""
    def ignore_eventfd(self, fd: int, /) -> None:
        """The endpoint has not attached, or goes."""
    def close(self) -> None:
        """The loop is about to be closed: its connections end with their transports."""
    def wake(self) -> None:
        """The loop's callback for the epoll descriptor: eventfds were rung."""
    def probe(self) -> None:
        """The queue's timer, while there is something to watch."""
    def turn(self) -> None:
        """The queue's callback in a turn of the loop."""
