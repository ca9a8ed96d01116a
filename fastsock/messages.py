"""Messages between processes of one host, in shared memory: groups that processes join by name.

docs/messages.md says what is guaranteed."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Any

from fastsock import config
from fastsock._native.messages import ANY, Lent, Member, Message

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]
    from types import TracebackType

__all__ = ["AsyncGroup", "Group", "Message"]

SIZE, LARGEST, KEPT = 64 << 20, 16 << 20, 1024
"""What a new group keeps at most: bytes, bytes of one message, messages."""


class Group(Member):
    """A membership of the group `name`. The first member makes the group; it ends with its last one.

    A new group keeps the last `kept` messages, in at most `size` bytes (or eight messages of `max_message` bytes, if
    that is more). A member that reads more slowly loses the oldest (`slow="drop"`), or holds the writers
    (`slow="block"`). `reads=False`: this member only sends. `copy=True`: it receives copies, which nobody can change
    any more. `owner` is the number of the user whom the name belongs to; other users join by it, if `trust` allows."""

    def __init__(
        self,
        name: str,
        *,
        slow: str = "drop",
        reads: bool = True,
        copy: bool = False,
        max_message: int = LARGEST,
        size: int = SIZE,
        kept: int = KEPT,
        owner: int | None = None,
    ) -> None:
        if slow not in ("drop", "block"):
            raise ValueError(f"slow is {slow!r}, but must be 'drop' or 'block'")
        for what, value, low, high in (
            ("max_message", max_message, 1, 1 << 32),
            ("size", size, 0, 1 << 40),
            ("kept", kept, 2, 65536),
        ):
            if not low <= value <= high:
                raise ValueError(f"{what} is {value}, but must be {low} to {high}")
        self.name = name
        config.active().given.apply_trust()
        user = os.geteuid() if owner is None else owner
        self._join(name.encode(), user, ANY, reads, slow == "block", kept, size, max_message, copy, True)

    def __repr__(self) -> str:
        return f"<fastsock.Group {self.name!r}{', closed' if self.closed else ''}>"


class AsyncGroup:
    """`Group` for asyncio, on any loop: its calls are coroutines. One event loop uses it."""

    def __init__(self, name: str, **options: Any) -> None:
        self._group = Group(name, **options)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return repr(self._group).replace("Group", "AsyncGroup", 1)

    @property
    def name(self) -> str:
        return self._group.name

    @property
    def lost(self) -> int:
        """Messages that this member has lost."""
        return self._group.lost

    def info(self) -> dict[str, Any]:
        """The state of the group, and the counts of this member."""
        return self._group.info()

    async def send(self, data: Buffer) -> None:
        """Copies `data`, any buffer, into the group. Waits only in a group that blocks."""
        while True:
            try:
                return self._group.send(data, 0)
            except TimeoutError:
                await self._room()

    async def _room(self) -> None:
        """Waits for the readers. (Nothing that a loop could watch says that they have read.)"""
        await asyncio.sleep(0.001)

    def lend(self, length: int) -> AsyncLent:
        """Lends memory for a message: `async with group.lend(n) as buffer` sends what was written there."""
        return AsyncLent(self, length)

    async def receive(self) -> Message:
        """Waits for the next message and returns it."""
        while (message := self._group.take()) is None:
            await self._message()
        return message

    def take(self) -> Message | None:
        """Returns the next message, or None."""
        return self._group.take()

    async def _message(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the first time, or the former one has been closed
            loop.add_reader(self._group.fileno(), self._readable)
            self._loop = loop
        waiting = loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            self._readable()  # this one may have been woken: the message is for another
            raise

    def _readable(self) -> None:
        """Wakes one that waits. If nobody does, the loop looks no more until somebody waits again."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting.set_result(None)
        self._unwatch()

    def _unwatch(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._group.fileno())
        self._loop = None

    def __aiter__(self) -> AsyncGroup:
        return self

    async def __anext__(self) -> Message:
        return await self.receive()

    def close(self) -> None:
        """Leaves the group. Whoever waits for a message gets ValueError."""
        if self._group.closed:
            return
        self._unwatch()
        self._group.close()
        while self._waiting:
            if not (waiting := self._waiting.popleft()).done():
                waiting.set_result(None)

    async def __aenter__(self) -> AsyncGroup:
        return self

    async def __aexit__(self, *failed: object) -> None:
        self.close()


class AsyncLent:
    """What `AsyncGroup.lend` returns."""

    def __init__(self, group: AsyncGroup, length: int) -> None:
        self._group, self._length = group, length
        self._lent: Lent | None = None

    async def __aenter__(self) -> Lent:
        while self._lent is None:
            try:
                self._lent = self._group._group.lend(self._length, 0)
            except TimeoutError:
                await self._group._room()
        return self._lent

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lent is not None
        if kind is not None:
            return self._lent.cancel()
        while not self._lent.publish(0):
            await self._group._room()
