"""Channels: a connected stream socket that carries messages, through shared memory where both ends have it.

channel_ends.py has what comes and goes; here are the calls that wait for it."""

from __future__ import annotations

import asyncio
import select
import time
from typing import TYPE_CHECKING, Any, TypeVar

from fastsock._native.messages import Lent, Member, Message
from fastsock.channel_ends import BEGUN, BUSY, FULL, GROUP, SHARED, Ends

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable  # type: ignore[attr-defined]

__all__ = ["AsyncChannel", "Channel"]

T = TypeVar("T")
SPIN = 50e-6
"""Seconds that a receiver looks at memory before it sleeps."""


LOOK = 0.1
"""Seconds that a call sleeps at most before it looks if another thread has closed the channel."""
PAUSE = 0.001
"""Seconds between two looks at what no event reports: another process's turn to write, or room for a message."""


def _bytes_of(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


class Channel:
    """A connected stream socket as a sequence of messages. Both ends make one, before anything else is sent.

    The socket is the channel's from now on. `max_message` is the longest message that this end takes, `size` the bytes
    that may be on their way from here. `copy=True`: it receives copies, which nobody can change any more."""

    def __init__(self, sock: Any, *, max_message: int = 16 << 20, size: int = 64 << 20, copy: bool = False) -> None:
        timeout = sock.gettimeout()
        self._ends = Ends(sock, max_message, size, copy)
        self._timeout: float | None = timeout

    def __repr__(self) -> str:
        return f"<fastsock.Channel on {self._ends.sock!r}>"

    @property
    def shared(self) -> bool:
        """Whether this end's messages go through shared memory."""
        return self._ends.sending == GROUP

    def settimeout(self, seconds: float | None) -> None:
        """Sets how long a call may wait; None: for ever. It is the socket's at first."""
        self._timeout = seconds

    def _until(self, timeout: float | None) -> float | None:
        timeout = self._timeout if timeout is None else timeout
        return None if timeout is None else time.monotonic() + timeout

    def _wait(self, until: float | None, events: int, *more: int) -> None:
        """Sleeps until the stream has one of the events, or one of the other descriptors is readable, or it is time to
        look again. No events: sleeps for a moment."""
        self._ends.check()
        rest = None if until is None else until - time.monotonic()
        if rest is not None and rest <= 0:
            raise TimeoutError("timed out")
        nap = LOOK if events or more else PAUSE
        poll = select.poll()
        if events:
            poll.register(self._ends.sock, events)
        for number in more:
            poll.register(number, select.POLLIN)
        poll.poll(1000 * (nap if rest is None else min(rest, nap)))

    def send(self, data: Buffer, timeout: float | None = None) -> None:
        """Sends a message. Raises TimeoutError if the other end does not read for `timeout` seconds."""
        ends = self._ends
        if ends.out_ready and not ends.closed:
            assert ends.out is not None
            length = memoryview(data).nbytes if not isinstance(data, bytes) else len(data)
            if length <= ends.limit:
                if ends.out.members() < 2:
                    ends.check_peer()
                return ends.out.send(data, self._timeout if timeout is None else timeout)
        view, until = _bytes_of(data), self._until(timeout)
        while not ends.may_send(len(view)):
            self._wait(until, select.POLLIN)
        while (state := ends.offer(view)) in (BUSY, FULL):
            self._wait(until, select.POLLOUT if state == FULL else 0)
        if state == SHARED:
            assert ends.out is not None
            ends.check_peer()
            return ends.out.send(view, None if until is None else max(until - time.monotonic(), 0))
        try:
            while state == BEGUN and not ends.finish():
                self._wait(until, select.POLLOUT)
        except BaseException:
            ends.shut()  # a part of the message has been sent
            ends.close()
            raise

    def lend(self, length: int, timeout: float | None = None) -> Lent | _Buffer:
        """Lends memory for a message: `with channel.lend(n) as buffer` sends what was written there. Without memory in
        common it is this process's own."""
        ends = self._ends
        if ends.may_send(length) and ends.out_ready:
            assert ends.out is not None
            ends.check_peer()
            return ends.out.lend(length, self._timeout if timeout is None else timeout)
        return _Buffer(self, length)

    def receive(self, timeout: float | None = None) -> Message:
        """Waits for the next message. Raises TimeoutError after `timeout` seconds, and EOFError at the end."""
        ends = self._ends
        if ends.into_ready and not ends.closed:
            assert ends.into is not None
            message = ends.into.take(SPIN)
            if message is not None:
                return message
        until = self._until(timeout)
        while (message := ends.next()) is None:
            full = not ends.flush()
            into = ends.into if ends.into_ready else None
            if into is None:
                self._wait(until, select.POLLIN | (select.POLLOUT if full else 0))
                continue
            try:
                self._wait(until, select.POLLIN, into.fileno())
            finally:
                into.unwatched()
            if not into.pending():
                ends.read(wants=False)
        return message

    def __iter__(self) -> Channel:
        return self

    def __next__(self) -> Message:
        try:
            return self.receive()
        except EOFError:
            raise StopIteration from None

    def fileno(self) -> int:
        """The number of the socket. (What is readable there need not be a message.)"""
        return int(self._ends.sock.fileno())

    def close(self) -> None:
        """Closes the channel and its socket. The other end gets what was sent before, and then EOFError."""
        self._ends.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()


class _Buffer(bytearray):
    """What is lent where there is no memory in common."""

    def __init__(self, channel: Any, length: int) -> None:
        super().__init__(length)
        self._channel = channel

    def __enter__(self) -> _Buffer:
        return self

    def __exit__(self, kind: Any, *failed: object) -> None:
        if kind is None:
            self._channel.send(self)


class AsyncChannel:
    """`Channel` for asyncio, on any loop: its calls are coroutines. One event loop uses it."""

    def __init__(self, sock: Any, *, max_message: int = 16 << 20, size: int = 64 << 20, copy: bool = False) -> None:
        self._ends = Ends(sock, max_message, size, copy)
        self._sending = asyncio.Lock()
        self._receiving = asyncio.Lock()
        self._waiting: dict[tuple[int, bool], list[asyncio.Future[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<fastsock.AsyncChannel on {self._ends.sock!r}>"

    @property
    def shared(self) -> bool:
        """Whether this end's messages go through shared memory."""
        return self._ends.sending == GROUP

    async def _ready(self, *numbers: int, write: int | None = None) -> None:
        """Waits until one of the descriptors is readable, or this one writable, or the channel is closed."""
        self._ends.check()
        self._loop = loop = asyncio.get_running_loop()
        ready = loop.create_future()
        wanted = [(number, False) for number in numbers] + ([] if write is None else [(write, True)])
        for each in wanted:
            if not self._waiting.setdefault(each, []):
                (loop.add_writer if each[1] else loop.add_reader)(each[0], self._wake, each)
            self._waiting[each].append(ready)
        try:
            await ready
        finally:
            for each in wanted:
                if each in self._waiting:  # (else it was closed)
                    self._waiting[each].remove(ready)
                    self._forget(each)

    def _wake(self, each: tuple[int, bool]) -> None:
        for ready in self._waiting[each]:
            if not ready.done():
                ready.set_result(None)

    def _forget(self, each: tuple[int, bool]) -> None:
        """The loop looks at the descriptor no more, if nobody waits for it."""
        if not self._waiting[each]:
            del self._waiting[each]
            if self._loop is not None and not self._loop.is_closed():
                (self._loop.remove_writer if each[1] else self._loop.remove_reader)(each[0])

    async def send(self, data: Buffer) -> None:
        """Sends a message. One that was cancelled may have been sent."""
        ends, view = self._ends, _bytes_of(data)
        number = ends.sock.fileno()
        async with self._sending:
            while not ends.may_send(len(view)):
                await asyncio.sleep(PAUSE)  # (the greeting comes once, and soon)
            while ends.outbox and not ends.finish():  # of a send that was cancelled
                await self._ready(write=number)
            while (state := ends.offer(view)) in (BUSY, FULL):
                await (self._ready(write=number) if state == FULL else asyncio.sleep(PAUSE))
            if state == SHARED:
                return await self._in_group(lambda member: member.send(view, 0))
            try:
                while state == BEGUN and not ends.finish():
                    await self._ready(write=number)
            except BaseException:
                ends.outbox = [memoryview(bytes(part)) for part in ends.outbox]  # the rest, which has to follow
                raise

    async def _in_group(self, call: Callable[[Member], T]) -> T:
        """Makes the call as soon as there is room in the group. (Nothing that a loop could watch says so.)"""
        ends = self._ends
        assert ends.out is not None
        while True:
            ends.check_peer()
            try:
                return call(ends.out)
            except TimeoutError:
                await asyncio.sleep(PAUSE)

    def lend(self, length: int) -> _AsyncLent:
        """Lends memory for a message: `async with channel.lend(n) as buffer` sends what was written there."""
        return _AsyncLent(self, length)

    async def receive(self) -> Message:
        """Waits for the next message. Raises EOFError at the end."""
        ends = self._ends
        async with self._receiving:
            while (message := ends.next()) is None:
                number = ends.sock.fileno()
                full = not (ends.finish() if ends.outbox else ends.flush())
                into = ends.into if ends.into_ready else None
                if into is None:
                    await self._ready(number, write=number if full else None)
                    continue
                await self._ready(number, into.fileno(), write=number if full else None)
                if not ends.closed and not into.pending():
                    ends.read(wants=False)
            return message

    def __aiter__(self) -> AsyncChannel:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except EOFError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Closes the channel and its socket. The other end gets what was sent before, and then EOFError. Who waits gets
        ValueError."""
        for each in list(self._waiting):
            self._wake(each)
            self._waiting[each].clear()
            self._forget(each)
        self._ends.close()

    async def __aenter__(self) -> AsyncChannel:
        return self

    async def __aexit__(self, *failed: object) -> None:
        self.close()


class _AsyncLent:
    """What `AsyncChannel.lend` returns."""

    def __init__(self, channel: AsyncChannel, length: int) -> None:
        self._channel, self._length = channel, length
        self._lent: Lent | bytearray = bytearray()

    async def __aenter__(self) -> Lent | bytearray:
        ends = self._channel._ends
        while not ends.may_send(self._length):
            await asyncio.sleep(PAUSE)
        if ends.out_ready:
            self._lent = await self._channel._in_group(lambda member: member.lend(self._length, 0))
        else:
            self._lent = bytearray(self._length)
        return self._lent

    async def __aexit__(self, kind: Any, *failed: object) -> None:
        lent = self._lent
        if isinstance(lent, bytearray):
            return None if kind else await self._channel.send(lent)
        if kind is not None:
            return lent.cancel()
        try:
            while not lent.publish(0):
                self._channel._ends.check_peer()
                await asyncio.sleep(PAUSE)
        except BaseException:
            lent.cancel()
            raise
