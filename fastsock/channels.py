"""Channels: a connected stream socket that carries messages, through shared memory where both ends have it.

channel_ends.py has what comes and goes; here are the calls that wait for it."""

from __future__ import annotations

import asyncio
import select
import threading
import time
from typing import TYPE_CHECKING, Any

from fastsock._native.messages import Lent, Message
from fastsock.channel_ends import DATA, FRAME, GROUP, Ends

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

__all__ = ["AsyncChannel", "Channel"]

SPIN = 50e-6


class Channel:
    """A connected stream socket as a sequence of messages. Both ends make one, before anything else is sent.

    The socket is the channel's from now on. `max_message` is the longest message that this end takes, `size` the bytes
    that may be on their way from here. `copy=True`: it receives copies, which nobody can change any more."""

    def __init__(self, sock: Any, *, max_message: int = 16 << 20, size: int = 64 << 20, copy: bool = False) -> None:
        timeout = sock.gettimeout()
        self._ends = Ends(sock, max_message, size, copy)
        self._timeout: float | None = timeout
        self._send_lock, self._receive_lock = threading.Lock(), threading.RLock()

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
        """Sleeps until the stream has one of the events, or one of the other descriptors is readable."""
        poll = select.poll()
        poll.register(self._ends.sock, events)
        for number in more:
            poll.register(number, select.POLLIN)
        rest = None if until is None else max(until - time.monotonic(), 0)
        if not poll.poll(None if rest is None else rest * 1000) and rest is not None:
            raise TimeoutError("timed out")

    def send(self, data: Buffer, timeout: float | None = None) -> None:
        """Sends a message. Raises TimeoutError if the other end does not read for `timeout` seconds."""
        ends = self._ends
        if ends.sending == GROUP and not ends.closed and ends.peer_most is not None and not ends.outbox:
            assert ends.out is not None
            length = memoryview(data).nbytes if not isinstance(data, bytes) else len(data)
            if length <= ends.peer_most:
                self._check()
                return ends.out.send(data, self._timeout if timeout is None else timeout)
        with self._send_lock:
            view = memoryview(data).cast("B")
            until = self._until(timeout)
            while not self._pumped(lambda: ends.may_send(len(view))):
                self._wait(until, select.POLLIN)
            while not ends.flush():
                self._wait(until, select.POLLOUT)
            if ends.sending == GROUP:
                assert ends.out is not None
                self._check()
                return ends.out.send(view, self._timeout if timeout is None else timeout)
            ends.write(FRAME.pack(DATA, len(view)), view)
            try:
                while not ends.flush():
                    self._wait(until, select.POLLOUT)
            except BaseException:
                ends.close()  # a part of the message has been sent
                raise

    def _pumped(self, step: Any) -> Any:
        """Calls what reads from the stream, unless another thread does."""
        if not self._receive_lock.acquire(blocking=False):
            return True
        try:
            return step()
        finally:
            self._receive_lock.release()

    def _check(self) -> None:
        """Raises BrokenPipeError if the other end is gone. This comes before a message is sent: who looks afterwards
        may find an end that has read it, and closed."""
        if self._ends.is_alone():
            raise BrokenPipeError("the other end has closed the channel")

    def lend(self, length: int, timeout: float | None = None) -> Lent | _Buffer:
        """Lends memory for a message: `with channel.lend(n) as buffer` sends what was written there. Without memory in
        common it is this process's own."""
        ends = self._ends
        ready = self._pumped(lambda: ends.may_send(length))
        if ready and ends.sending == GROUP and ends.flush():
            assert ends.out is not None
            self._check()
            return ends.out.lend(length, self._timeout if timeout is None else timeout)
        return _Buffer(self, length)

    def receive(self, timeout: float | None = None) -> Message:
        """Waits for the next message. Raises TimeoutError after `timeout` seconds, and EOFError at the end."""
        ends = self._ends
        into = ends.into
        if ends.switched and into is not None and not ends.inbox and not ends.closed:
            message = into.take(SPIN)
            if message is not None:
                return message
        until = self._until(timeout)
        with self._receive_lock:
            while (message := ends.next()) is None:
                ends.flush()
                if not ends.switched or ends.into is None:
                    self._wait(until, select.POLLIN | (select.POLLOUT if ends.outbox else 0))
                    continue
                try:
                    self._wait(until, select.POLLIN, ends.into.fileno())
                finally:
                    ends.into.unwatched()
                if not ends.into.pending():
                    ends.pump()
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
    """`Channel` for asyncio, on any loop: its calls are coroutines."""

    def __init__(self, sock: Any, *, max_message: int = 16 << 20, size: int = 64 << 20, copy: bool = False) -> None:
        self._ends = Ends(sock, max_message, size, copy)
        self._sending = asyncio.Lock()
        self._receiving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<fastsock.AsyncChannel on {self._ends.sock!r}>"

    @property
    def shared(self) -> bool:
        """Whether this end's messages go through shared memory."""
        return self._ends.sending == GROUP

    async def _flushed(self) -> None:
        while not self._ends.flush():
            await _ready(self._ends.sock.fileno(), write=True)

    async def _may_send(self, length: int) -> None:
        while not self._ends.may_send(length):
            await asyncio.sleep(0.001)  # (the greeting comes once, and soon)
        await self._flushed()

    async def send(self, data: Buffer) -> None:
        """Sends a message."""
        ends, view = self._ends, memoryview(data).cast("B")
        async with self._sending:
            await self._may_send(len(view))
            if ends.sending != GROUP:
                ends.write(FRAME.pack(DATA, len(view)), view)
                return await self._flushed()
            assert ends.out is not None
            while True:
                if ends.is_alone():
                    raise BrokenPipeError("the other end has closed the channel")
                try:
                    return ends.out.send(view, 0)
                except TimeoutError:
                    await asyncio.sleep(0.001)

    def lend(self, length: int) -> _AsyncLent:
        """Lends memory for a message: `async with channel.lend(n) as buffer` sends what was written there."""
        return _AsyncLent(self, length)

    async def receive(self) -> Message:
        """Waits for the next message. Raises EOFError at the end."""
        ends = self._ends
        async with self._receiving:
            while (message := ends.next()) is None:
                await self._flushed()
                if not ends.switched or ends.into is None:
                    await _ready(ends.sock.fileno())
                    continue
                await _ready(ends.sock.fileno(), ends.into.fileno())
                if not ends.into.pending():
                    ends.pump()
            return message

    def __aiter__(self) -> AsyncChannel:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except EOFError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Closes the channel and its socket. The other end gets what was sent before, and then EOFError."""
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
        await self._channel._may_send(self._length)
        while ends.sending == GROUP:
            assert ends.out is not None
            try:
                self._lent = ends.out.lend(self._length, 0)
                return self._lent
            except TimeoutError:
                await asyncio.sleep(0.001)
        self._lent = bytearray(self._length)
        return self._lent

    async def __aexit__(self, kind: Any, *failed: object) -> None:
        if isinstance(self._lent, bytearray):
            return None if kind else await self._channel.send(self._lent)
        if kind is not None:
            return self._lent.cancel()
        while not self._lent.publish(0):
            await asyncio.sleep(0.001)


async def _ready(*numbers: int, write: bool = False) -> None:
    """Waits until one of the descriptors is readable, or writable."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    for number in numbers:
        add(number, note)
    try:
        await ready
    finally:
        for number in numbers:
            remove(number)
