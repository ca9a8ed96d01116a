"""One connection that a loop carries: what its transport holds, how it ends, and the calls of its program's protocol."""

from typing import Any

from fastsock._native.completion_queue import CompletionQueue, QueuedConnection

class LoopContext:
    """What the transports of a loop have in common. `stdlib`: whether it is one of the stdlib's loops. `policy`: who decides
    about paths, and has the classes that are Python's (fastsock.aio.transport_policy)."""

    def __new__(cls, loop: Any, queue: CompletionQueue, stdlib: bool, policy: Any) -> LoopContext: ...
    @property
    def loop(self) -> Any: ...
    @property
    def queue(self) -> CompletionQueue: ...

class LowerProtocol:
    """What stands below a transport as the protocol of the loop's own."""

class LoopConnection(QueuedConnection):
    """What a transport holds, and how it ends."""

    @property
    def lower(self) -> Any:
        """The loop's own transport."""
    @property
    def operations(self) -> int:
        """Reads and writes so far, while the connection is on the kernel."""
    sends_file: bool
    """A file is being sent: nothing may move, and the program may not write."""
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def _force_close(self, error: BaseException | None) -> None: ...
