"""A connection of an event loop: the state of its transport, its end, and the calls of the program's protocol."""

from typing import Any

from fastsock._native.completion_queue import CompletionQueue, QueuedConnection

class LoopContext:
    """State shared by all transports of a loop. `stdlib`: true for the stdlib's loops. `policy`: the module with the
    functions that decide about paths, and with the Python classes (fastsock.aio.transport_policy)."""

    def __new__(cls, loop: Any, queue: CompletionQueue, stdlib: bool, policy: Any) -> LoopContext: ...
    @property
    def loop(self) -> Any: ...
    @property
    def queue(self) -> CompletionQueue: ...

class LowerProtocol:
    """The protocol of the loop's own transport, below our transport."""

class LoopConnection(QueuedConnection):
    """The state of a transport, and its end."""

    @property
    def lower(self) -> Any:
        """The loop's own transport."""
    @property
    def operations(self) -> int:
        """Number of reads and writes while the connection is on kernel TCP."""
    sends_file: bool
    """True while a file is sent: the connection may not move, and the program may not write."""
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def _force_close(self, error: BaseException | None) -> None: ...
