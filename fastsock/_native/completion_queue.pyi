"""The completion queue of an event loop, and its view of the loop's transports."""

import asyncio

from fastsock._native.endpoint import Endpoint

class QueuedConnection:
    """The interface of a transport to the queue."""

class CompletionQueue:
    """Polls the active connections of an event loop, delivers their data, and arms idle connections."""

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> CompletionQueue: ...
    @property
    def epoll(self) -> int:
        """The descriptor of the event set, which the loop polls; -1 if there is none yet."""
    @property
    def begun(self) -> set[QueuedConnection]:
        """Transports with an endpoint."""
    def admit(self, endpoint: Endpoint, /) -> None:
        """Allocates a slot in the event set, before the endpoint attaches. Raises OSError if that fails."""
    def keep_late(self, slot: int, data: bytes, /) -> None:
        """Passes bytes to the transport in this slot, whose connection falls back to kernel TCP: they come before the
        bytes in the kernel's queue."""
    def dismiss(self, endpoint: Endpoint, /) -> None:
        """Frees the endpoint's slot: the endpoint failed to attach, or ends."""
    def close(self) -> None:
        """Ends the loop's connections. Called before the loop is closed."""
    def wake(self) -> None:
        """The loop's callback for the event set's descriptor: an armed connection has data or room."""
    def probe(self) -> None:
        """The timer callback: checks the peers of half-closed connections with a backlog."""
    def turn(self) -> None:
        """The queue's callback in each iteration of the loop, while a connection is active."""
