"""Channels: a connected stream socket that carries messages, through shared memory where both ends have it.

On the stream a channel is a greeting, and then frames: a kind, a length, and as many bytes. The greeting names a group
of the sender's (messages.py), of which it is the only writer. The other end joins it and says so by a frame. From then
on the sender's messages go there, after one more frame that says from where on; the stream only tells the end. Where
the group cannot be joined (another host, an untrusted user, another network namespace) messages stay frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket as stdlib
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from fastsock import config
from fastsock._native.messages import EXISTING, NEW, Lent, Member, Message, message_of

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

__all__ = ["AsyncChannel", "Channel"]

MAGIC = b"fsmsg\0\0\1"
GREETING = struct.Struct("<8s16sIIQ")  # magic, token, user, has a group, longest message
FRAME = struct.Struct("<QQ")  # kind, length
DATA, JOINED, REFUSED, SWITCH = range(4)
KEPT = 256
"""Messages on their way in each direction at most."""
UNKNOWN, STREAM, GROUP = range(3)
EARLY = 1 << 16
"""Bytes that are sent before the other end's greeting has said how many it takes."""
SPIN = 50e-6


class _Ends:
    """What `Channel` and `AsyncChannel` have in common. Nothing here waits."""

    def __init__(self, sock: Any, max_message: int, size: int, copy: bool) -> None:
        if not 1 <= max_message <= 1 << 32:
            raise ValueError(f"max_message is {max_message}, but must be 1 to {1 << 32}")
        if sock.type != stdlib.SOCK_STREAM:
            raise ValueError("a channel needs a connected stream socket")
        sock.getpeername()
        sock.setblocking(False)
        self.sock, self.most, self.copies = sock, max_message, copy
        self.sending = UNKNOWN
        self.switched = self.ended = self.closed = False
        self.out: Member | None = None
        self.into: Member | None = None
        self.peer_most: int | None = None
        self.inbox: deque[Message] = deque()
        self.outbox: deque[memoryview] = deque()
        self.flushing = threading.Lock()
        self.count = 0
        self.kind: int | None = None  # of the frame whose bytes come; None: a header, or the greeting
        self.expect(GREETING.size)
        token = os.urandom(16)
        if _may_share(sock):
            config.active().given.apply_trust()
            try:
                self.out = _join(token, os.geteuid(), NEW, False, size, max_message, copy)
            except OSError:
                self.sending = STREAM
        else:
            self.sending = STREAM
        self.write(GREETING.pack(MAGIC, token, os.geteuid(), self.out is not None, max_message))

    # ---- what comes by the stream

    def expect(self, length: int) -> None:
        self.data = bytearray(length)
        self.missing = memoryview(self.data)

    def pump(self) -> None:
        """Reads what the stream has; `ended`: to its end. Raises ConnectionAbortedError if the peer is no channel."""
        while not self.ended:
            if self.missing:
                try:
                    got = self.sock.recv_into(self.missing)
                except (BlockingIOError, InterruptedError):
                    return
                except ConnectionResetError:  # it closed, and had not read all
                    got = 0
                self.ended = got == 0
                self.missing = self.missing[got:]
            if not self.missing and not self.ended:
                self.complete()

    def complete(self) -> None:
        data, kind = self.data, self.kind
        if self.peer_most is None:
            magic, token, user, has_group, self.peer_most = GREETING.unpack(data)
            if magic != MAGIC:
                self.fail("the other end is no fastsock.Channel, or one of another version")
            self.meet(bytes(token), user, bool(has_group))
        elif kind is None:
            self.kind, length = FRAME.unpack(data)
            if length > (self.most if self.kind == DATA else 0) or not DATA <= self.kind <= SWITCH:
                self.fail("the other end has sent what no channel sends")
            return self.expect(length)
        elif kind == DATA:
            if self.switched:
                self.fail("the other end has sent what no channel sends")
            self.inbox.append(message_of(data, self.count))
            self.count += 1
        elif kind == SWITCH:
            if self.into is None or self.switched:
                self.fail("the other end has sent what no channel sends")
            self.switched = True
        elif self.sending == UNKNOWN:
            self.sending = GROUP if kind == JOINED else STREAM
            if self.sending == GROUP:
                self.write(FRAME.pack(SWITCH, 0))
            elif self.out is not None:
                self.out.close()
        self.kind = None
        self.expect(FRAME.size)

    def meet(self, token: bytes, user: int, has_group: bool) -> None:
        """The other end has greeted."""
        answer = REFUSED
        if has_group and _may_share(self.sock):
            try:
                self.into = _join(token, user, EXISTING, True, 0, self.most, self.copies)
                answer = JOINED
            except (OSError, ValueError):
                pass
        self.write(FRAME.pack(answer, 0))

    def fail(self, words: str) -> None:
        self.close()
        raise ConnectionAbortedError(words)

    # ---- what goes

    def write(self, *parts: Any) -> None:
        """Queues bytes for the stream, and writes what it takes."""
        self.outbox.extend(memoryview(part).cast("B") for part in parts if len(part))
        self.flush()

    def flush(self) -> bool:
        """Writes what the stream takes. Returns true if that was all."""
        with self.flushing:
            try:
                while self.outbox:
                    sent = self.sock.send(self.outbox[0])
                    if sent == len(self.outbox[0]):
                        self.outbox.popleft()
                    else:
                        self.outbox[0] = self.outbox[0][sent:]
            except (BlockingIOError, InterruptedError):
                return False
        return True

    def may_send(self, length: int) -> bool:
        """Returns false if it is not known yet that the other end takes so much. Raises ValueError if it does not."""
        if self.closed:
            raise ValueError("the channel is closed")
        if self.sending == UNKNOWN or self.peer_most is None:
            self.pump()
        if length > self.most or (self.peer_most is not None and length > self.peer_most):
            raise ValueError(f"the message has {length} bytes, more than max_message")
        return self.peer_most is not None or length <= EARLY or self.ended

    def is_alone(self) -> bool:
        return self.out is not None and self.out.members() < 2

    # ---- what comes

    def next(self) -> Message | None:
        """Returns the next message, or None. Raises EOFError at the end."""
        if self.closed:
            raise ValueError("the channel is closed")
        if not self.inbox and not self.switched:
            self.pump()
        if self.inbox:
            return self.inbox.popleft()
        ended = self.ended  # before the look: what the other end sent before it closed has come by then
        if self.switched and self.into is not None and (message := self.into.take()) is not None:
            return message
        if ended:
            if self.kind is not None or len(self.missing) < len(self.data):
                raise ConnectionResetError("the channel ended in the middle of a message")
            raise EOFError("the other end has closed the channel")
        return None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for member in (self.out, self.into):
                if member is not None:
                    member.close()
            with contextlib.suppress(OSError):  # what nobody has read would make the end a reset
                while self.sock.recv(1 << 16):
                    pass
            self.sock.close()


def _may_share(sock: Any) -> bool:
    """Both ends are on this host, as far as their addresses tell."""
    if sock.family == stdlib.AF_UNIX:
        return True
    here, there = sock.getsockname()[0], sock.getpeername()[0]
    return bool(here == there or there.startswith("127.") or there == "::1")


def _join(token: bytes, user: int, how: int, reads: bool, size: int, most: int, copies: bool) -> Member:
    member = Member()
    member._join(b"channel " + token.hex().encode(), user, how, reads, True, KEPT, size, most, copies)
    return member


class Channel:
    """A connected stream socket as a sequence of messages. Both ends make one, before anything else is sent.

    The socket is the channel's from now on. `max_message` is the longest message that this end takes, `size` the bytes
    that may be on their way from here. `copy=True`: it receives copies, which nobody can change any more."""

    def __init__(self, sock: Any, *, max_message: int = 16 << 20, size: int = 64 << 20, copy: bool = False) -> None:
        timeout = sock.gettimeout()
        self._ends = _Ends(sock, max_message, size, copy)
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
        self._ends = _Ends(sock, max_message, size, copy)
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
