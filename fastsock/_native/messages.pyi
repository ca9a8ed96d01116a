"""Memberships of groups, and what they lend."""

import sys
from types import TracebackType
from typing import Any, TypeVar, final

from typing_extensions import Buffer

_Self = TypeVar("_Self", bound=Member)

ANY: int
NEW: int
EXISTING: int
"""How a group is joined."""


def message_of(data: bytearray, sequence: int) -> Message:
    """A message that came another way."""

def inspect(socket_name: bytes) -> tuple[str, dict[str, Any]]:
    """Returns (name, state) of the group that the socket of a member belongs to, without joining. Raises OSError."""

@final
class Message:
    """A message that was received: a read-only buffer. What is long lies in the group's memory, and is given back by
    `release`, by leaving `with` once no view is left, or by being dropped."""

    @property
    def sequence(self) -> int:
        """Its place in the order of the group."""
    @property
    def lost(self) -> int:
        """How many messages right before it this member has lost."""
    @property
    def sender(self) -> int:
        """The place of its sender among the members."""
    @property
    def kind(self) -> int: ...
    @property
    def own(self) -> bool:
        """Whether this member has sent it."""
    def release(self) -> None:
        """Gives the memory back. Raises BufferError while there are views of it."""
    def __len__(self) -> int: ...
    def __enter__(self) -> Message: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@final
class Lent:
    """Memory of the group that is filled in place: a writable buffer. Leaving `with` sends it; an exception gives it
    back."""

    def publish(self, timeout: float | None = None) -> bool:
        """Sends it, as leaving `with` does. Returns false if there was no room for `timeout` seconds: then it is still
        lent."""
    def cancel(self) -> None:
        """Gives the memory back, and sends nothing."""
    def shorten(self, length: int) -> None:
        """Sends only the first `length` bytes."""
    def __len__(self) -> int: ...
    def __enter__(self) -> Lent: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

class Member:
    """A membership."""

    closed: bool
    copies: bool
    def _join(
        self,
        name: bytes,
        owner: int,
        how: int,
        reads: bool,
        blocking: bool,
        slots: int,
        size: int,
        largest: int,
        copies: bool,
        far: bool,
    ) -> None: ...
    def close(self) -> None:
        """Leaves the group. Messages that are still lent stay valid until they are released."""
    def fileno(self) -> int:
        """A descriptor that is readable while there is a message: for select and event loops."""
    def unwatched(self) -> None:
        """Nobody looks at the descriptor any more, until `fileno` is called again."""
    def members(self) -> int:
        """How many members the group has, as far as is known: one that was killed counts until somebody needs room."""
    @property
    def lost(self) -> int:
        """Messages that this member has lost."""
    def info(self) -> dict[str, Any]:
        """The state of the group, and the counts of this member."""
    def send(self, data: Buffer, timeout: float | None = None, kind: int = 0) -> None:
        """Copies `data`, any buffer, into the group. Waits only in a group that blocks; raises TimeoutError after
        `timeout` seconds."""
    def lend(self, length: int, timeout: float | None = None) -> Lent:
        """Lends memory for a message of `length` bytes, to be filled in a `with` statement, which sends it."""
    def pending(self) -> bool:
        """Returns true if there is a message."""
    def take(self, timeout: float | None = 0) -> Message | None:
        """Returns the next message, or None if none comes for `timeout` seconds (None: for ever)."""
    def receive(self, timeout: float | None = None) -> Message:
        """Waits for the next message and returns it. Raises TimeoutError after `timeout` seconds."""
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self: _Self) -> _Self: ...
    def __next__(self) -> Message: ...
