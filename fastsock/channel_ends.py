"""The ends of a channel (channels.py): what goes over its stream, and how both come to share memory.

On the stream a channel is a greeting, and then frames: a kind, a length, and as many bytes. The greeting names a group
of the sender's (messages.py), of which it is the only writer. The other end joins it and says so by a frame. From then
on the sender's messages go there, after one more frame that says from where on; the stream only tells the end. Where
the group cannot be joined (another host, an untrusted user, another network namespace without a `rendezvous_dir` that
both see) messages stay frames.
"""

from __future__ import annotations

import contextlib
import os
import socket as stdlib
import struct
import threading
from collections import deque
from typing import Any

from fastsock import config
from fastsock._native.messages import EXISTING, NEW, Member, Message, message_of

__all__ = ["DATA", "FRAME", "GROUP", "Ends"]

MAGIC = b"fsmsg\0\0\1"
GREETING = struct.Struct("<8s16sIIQ")  # magic, token, user, where its group is, longest message
FRAME = struct.Struct("<QQ")  # kind, length
DATA, JOINED, REFUSED, SWITCH = range(4)
KEPT = 256
"""Messages on their way in each direction at most."""
UNKNOWN, STREAM, GROUP = range(3)
NOWHERE, NEAR, FAR = range(3)
"""Where a group is: by an abstract name, or in the `rendezvous_dir`."""
EARLY = 1 << 16
"""Bytes that are sent before the other end's greeting has said how many it takes."""


class Ends:
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
        config.active().given.apply_trust()
        where = _where(sock)
        if where != NOWHERE:
            try:
                self.out = _join(token, os.geteuid(), NEW, False, size, max_message, copy, where)
            except OSError:
                where = NOWHERE
        if where == NOWHERE:
            self.sending = STREAM
        self.write(GREETING.pack(MAGIC, token, os.geteuid(), where, max_message))

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
            magic, token, user, where, self.peer_most = GREETING.unpack(data)
            if magic != MAGIC:
                self.fail("the other end is no fastsock.Channel, or one of another version")
            self.meet(bytes(token), user, where)
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

    def meet(self, token: bytes, user: int, where: int) -> None:
        """The other end has greeted."""
        answer = REFUSED
        if where != NOWHERE and _where(self.sock) != NOWHERE:
            try:
                self.into = _join(token, user, EXISTING, True, 0, self.most, self.copies, where)
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


def _where(sock: Any) -> int:
    """Where the other end could join a group, as far as this end knows."""
    if sock.family == stdlib.AF_UNIX:
        near = _is_near(sock)
    else:
        here, there = sock.getsockname()[0], sock.getpeername()[0]
        near = here == there or there.startswith("127.") or there == "::1"
    return NEAR if near else FAR if config.active().rendezvous_dir else NOWHERE


def _is_near(sock: Any) -> bool:
    """Whether the process that made the other end of a unix stream is in this network namespace."""
    process, _, _ = struct.unpack("iII", sock.getsockopt(stdlib.SOL_SOCKET, stdlib.SO_PEERCRED, 12))
    try:
        return os.readlink(f"/proc/{process}/ns/net") == os.readlink("/proc/self/ns/net")
    except OSError:  # it has ended, or may not be looked at
        return int(process) != 0  # 0: one in another namespace of processes, a container


def _join(token: bytes, user: int, how: int, reads: bool, size: int, most: int, copies: bool, where: int) -> Member:
    member = Member()
    name = b"channel " + token.hex().encode()
    member._join(name, user, how, reads, True, KEPT, size, most, copies, where == FAR)
    return member
