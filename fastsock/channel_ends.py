"""The ends of a channel (channels.py): what goes over its stream, and how both come to share memory.

On the stream a channel is a greeting, and then frames: a kind, a length, and as many bytes. The greeting names a group
of the sender's (messages.py), of which it is the only writer. The other end joins it and says so by a frame. From then
on the sender's messages go there, after one more frame that says from where on; the stream only tells the end. Where
the group cannot be joined (another host, an untrusted user, another network namespace without a `rendezvous_dir` that
both see) messages stay frames.

Forked processes share an end as they share its socket. What is known of the stream is in a file in memory that they all
map, and whoever reads or writes the stream has the turn to do so: a lock of the process on a byte of that file, which
ends with the process, and one of its threads. Nobody keeps a turn while it waits, but for the rest of a frame that it
has begun to write. A group can only be shared by processes that are forked later. So an end that was forked before it
has met the other one does not join, and gets frames.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket as stdlib
import struct
import threading
from typing import Any

from fastsock import config
from fastsock._native.messages import EXISTING, NEW, Member, Message, message_of

__all__ = ["BEGUN", "BUSY", "FULL", "GROUP", "SHARED", "Ends"]

MAGIC = b"fsmsg\0\0\1"
GREETING = struct.Struct("<8s16sIIQ")  # magic, token, user, where its group is, longest message
FRAME = struct.Struct("<QQ")  # kind, length
DATA, JOINED, REFUSED, SWITCH = range(4)
KEPT = 256
"""Messages on their way in each direction at most."""
UNKNOWN, STREAM, GROUP = range(3)
NOWHERE, NEAR, FAR = range(3)
"""Where a group is: by an abstract name, or in the `rendezvous_dir`."""
READING, WRITING = range(2)
BUSY, FULL, BEGUN, SENT, SHARED = range(5)
"""What has become of a frame: another has the turn to write, or the stream takes no more; `finish` sends the rest; it
is sent; or it has to go through the group."""
EARLY = 1 << 16
"""Bytes that are sent before the other end's greeting has said how many it takes."""
PAGE = mmap.PAGESIZE
LEFT = 256
"""Where in the page bytes are that have to be written before anything else."""
WORD, FRAME_WORDS = struct.Struct("@q"), struct.Struct("@4q")

forks = 0
"""How many children this process has had, and those that it is a child of."""
meeting = threading.RLock()
"""No fork comes between the look whether there was one and the joining of a group."""


def _before_fork() -> None:
    global forks
    meeting.acquire()
    forks += 1


os.register_at_fork(before=_before_fork, after_in_parent=meeting.release, after_in_child=meeting.release)


class _Shared:
    """A number that all processes of an end have in common."""

    def __init__(self, number: int) -> None:
        self.at = number * WORD.size

    def __get__(self, ends: Ends, owner: type) -> int:
        return int(WORD.unpack_from(ends.page, self.at)[0])

    def __set__(self, ends: Ends, value: int) -> None:
        WORD.pack_into(ends.page, self.at, value)


class Ends:
    """What `Channel` and `AsyncChannel` have in common. Nothing here waits."""

    # whoever has the turn to read changes these
    reads, sending, switched, ended, answer, peer_most, count = map(_Shared, range(7))
    kind, need, got, frame = map(_Shared, range(7, 11))  # of the frame that comes; kind -1: a header, or the greeting
    # and who has the turn to write, these
    writes, answered, told, left = map(_Shared, range(11, 15))
    broken = _Shared(15)

    def __init__(self, sock: Any, max_message: int, size: int, copy: bool) -> None:
        if not 1 <= max_message <= 1 << 32:
            raise ValueError(f"max_message is {max_message}, but must be 1 to {1 << 32}")
        if sock.type != stdlib.SOCK_STREAM:
            raise ValueError("a channel needs a connected stream socket")
        sock.getpeername()
        sock.setblocking(False)
        if sock.family != stdlib.AF_UNIX:
            sock.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY, 1)  # each message is meant to go
        self.sock, self.most, self.copies = sock, max_message, copy
        self.file = open(os.memfd_create("fastsock-channel"), "r+b", buffering=0)
        self.file.truncate(PAGE)
        self.page: Any = mmap.mmap(self.file.fileno(), PAGE)
        self.forks, self.process = forks, os.getpid()
        self.closed = False
        self.limit = -1  # `peer_most`, once `out_ready` is true
        self.out_ready = self.into_ready = False  # messages go and come by the groups: this never changes again
        self.out: Member | None = None
        self.into: Member | None = None
        self.locks = (threading.Lock(), threading.Lock())
        self.outbox: list[
            memoryview
        ] = []  # the rest of a frame; while there is one, this process has the turn to write
        self.data, self.data_of, self.have, self.kept = bytearray(), -1, 0, 0  # what this process has of a frame
        self.peer_most = -1
        self.kind, self.need = -1, GREETING.size
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
        self.owe(GREETING.pack(MAGIC, token, os.geteuid(), where, max_message))
        self.flush()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # (there is none yet)
            self.file.close()

    # ---- turns

    def has_turn(self, which: int) -> bool:
        """Takes the turn to read, or to write, if nobody has it."""
        if os.getpid() != self.process:  # what the parent's threads have is theirs
            self.process, self.locks, self.outbox = os.getpid(), (threading.Lock(), threading.Lock()), []
        if self.closed or not self.locks[which].acquire(blocking=False):
            return False
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, which)
        except OSError:
            self.locks[which].release()
            return False
        if self.writes if which == WRITING else self.reads:
            self.broken = True  # who had the turn was killed between two steps that belong together
        return True

    def end_turn(self, which: int) -> None:
        if not self.closed:
            if which == WRITING:
                self.writes = False
            else:
                self.reads = False
            fcntl.lockf(self.file, fcntl.LOCK_UN, 1, which)
        self.locks[which].release()

    def check(self) -> None:
        if self.closed:
            raise ValueError("the channel is closed")
        if self.broken:
            self.shut()
            raise ConnectionResetError("the channel has ended in the middle of a message of a process that shares it")

    # ---- what comes by the stream

    def expect(self, kind: int, length: int) -> None:
        FRAME_WORDS.pack_into(self.page, 7 * WORD.size, kind, length, 0, self.frame + 1)  # all in one step

    def pump(self, wants: bool) -> Message | None:
        """Reads from the stream, with the turn: until the first message if one is wanted, else up to it."""
        while not self.ended and (wants or self.kind != DATA):
            if self.data_of != self.frame:
                self.data, self.data_of, self.have, self.kept = bytearray(self.need), self.frame, 0, 0
            if self.have < self.got:  # another process has read this
                os.preadv(self.file.fileno(), [memoryview(self.data)[self.have : self.got]], PAGE + self.have)
                self.have = self.kept = self.got
            if self.got < self.need:
                if not self.take():
                    return None
            elif (message := self.complete()) is not None:
                if len(message) >= PAGE:
                    self.file.truncate(PAGE)
                return message
        return None

    def take(self) -> bool:
        """Reads some bytes of the frame. Returns false if there are none. (Whoever is killed with the mark `reads` may
        have bytes that nobody else has.)"""
        forked = forks != self.forks
        if forked and not self.is_readable():
            return False
        self.reads = True
        try:
            got = self.sock.recv_into(memoryview(self.data)[self.have :])
        except (BlockingIOError, InterruptedError):
            self.keep()
            return False
        except ConnectionResetError:  # it closed, and had not read all
            got = 0
        self.have += got
        if forked:
            self.keep()
        self.got = self.have
        self.ended = got == 0
        if forked:
            self.reads = False
        return True

    def keep(self) -> None:
        """Leaves what has been read of the frame to others."""
        if self.kept < self.have:
            os.pwrite(self.file.fileno(), memoryview(self.data)[self.kept : self.have], PAGE + self.kept)
            self.kept = self.have

    def is_readable(self) -> bool:
        try:
            self.sock.recv(1, stdlib.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionResetError:
            self.ended = True  # (it closed, and had not read all)
        return True

    def complete(self) -> Message | None:
        data, kind = self.data, self.kind
        if self.peer_most < 0:
            magic, token, user, where, peer_most = GREETING.unpack(data)
            if magic != MAGIC:
                self.fail("the other end is no fastsock.Channel, or one of another version")
            self.meet(bytes(token), user, where)
            self.peer_most = min(peer_most, 1 << 62)
        elif kind < 0:
            kind, length = FRAME.unpack(data)
            if (
                length > (self.most if kind == DATA else 0)
                or not DATA <= kind <= SWITCH
                or (kind == DATA and self.switched)
            ):
                self.fail("the other end has sent what no channel sends")
            self.expect(kind, length)
            return None
        elif kind == DATA:
            self.count += 1
            self.expect(-1, FRAME.size)
            return message_of(data, self.count - 1)
        elif kind == SWITCH:
            if self.into is None or self.switched:
                self.fail("the other end has sent what no channel sends")
            self.switched = True
        elif self.sending == UNKNOWN:
            self.sending = GROUP if kind == JOINED else STREAM
            if self.sending == STREAM and self.out is not None:
                self.out.close()
        self.expect(-1, FRAME.size)
        return None

    def meet(self, token: bytes, user: int, where: int) -> None:
        """The other end has greeted."""
        self.answer = REFUSED
        with meeting, contextlib.suppress(OSError, ValueError):
            if where != NOWHERE and _where(self.sock) != NOWHERE and forks == self.forks:
                self.into = _join(token, user, EXISTING, True, 0, self.most, self.copies, where)
                self.answer = JOINED

    def fail(self, words: str) -> None:
        raise ConnectionAbortedError(words)

    def shut(self) -> None:
        """Ends the stream for all processes that share it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(stdlib.SHUT_RDWR)

    # ---- what goes

    def owe(self, data: bytes) -> None:
        self.page[LEFT + self.left : LEFT + self.left + len(data)] = data
        self.left += len(data)

    def owes(self) -> bool:
        return bool(self.left or self.answer != self.answered or (self.sending == GROUP and not self.told))

    def flush(self) -> bool:
        """Writes the frames of a few bytes that have to be written, as far as the stream takes them. Returns false if
        it is full, and true if they are all written, or another has the turn to."""
        while self.owes():
            if not self.has_turn(WRITING):
                return True
            try:
                if not self.write():
                    return False
            finally:
                self.end_turn(WRITING)
        return True

    def finish(self) -> bool:
        """Writes the rest of a frame that this process has begun. Returns false if the stream is full."""
        if not self.outbox:
            return True
        if self.closed:
            raise ValueError("the channel is closed")
        try:
            while self.outbox:
                sent = self.sock.sendmsg(self.outbox)
                while self.outbox and sent >= len(self.outbox[0]):
                    sent -= len(self.outbox.pop(0))
                if sent:
                    self.outbox[0] = self.outbox[0][sent:]
        except (BlockingIOError, InterruptedError):
            return False
        except BaseException:
            self.outbox = []
            self.end_turn(WRITING)
            raise
        self.end_turn(WRITING)
        self.flush()  # what became due meanwhile
        return True

    def write(self) -> bool:
        """As `flush`, with the turn."""
        if self.answer != self.answered:
            self.owe(FRAME.pack(self.answer, 0))
            self.answered = self.answer
        if self.sending == GROUP and not self.told:
            self.owe(FRAME.pack(SWITCH, 0))
            self.told = True
        while left := self.left:
            rest = self.page[LEFT : LEFT + left]
            self.writes = True
            try:
                sent = self.sock.send(rest)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:  # the other end is gone: nobody reads them any more
                sent = left
            self.page.move(LEFT, LEFT + sent, left - sent)
            self.left = left - sent
            self.writes = False
        return True

    def offer(self, data: memoryview) -> int:
        """Sends a message as a frame, or begins to."""
        if not self.has_turn(WRITING):
            self.check()
            return BUSY
        try:
            self.check()
            if not self.write():
                return FULL
            if self.sending == GROUP:
                return SHARED
            try:
                self.writes = True
                header = FRAME.pack(DATA, len(data))
                sent = self.sock.sendmsg([header, data])
            except (BlockingIOError, InterruptedError):
                return FULL
            parts = (memoryview(header)[sent:], data[max(sent - len(header), 0) :])
            self.outbox = [part for part in parts if len(part)]
            return BEGUN if self.outbox else SENT
        finally:
            if not self.outbox:
                self.end_turn(WRITING)

    def may_send(self, length: int) -> bool:
        """Returns false if it is not known yet that the other end takes so much. Raises ValueError if it does not."""
        self.check()
        if self.sending == UNKNOWN or self.peer_most < 0:
            self.read(wants=False)
        self.limit, self.out_ready = self.peer_most, self.sending == GROUP and not self.owes()
        if length > self.most or 0 <= self.peer_most < length:
            raise ValueError(f"the message has {length} bytes, more than max_message")
        return self.peer_most >= 0 or length <= EARLY or bool(self.ended)

    def check_peer(self) -> None:
        """Raises BrokenPipeError if the other end is gone. This comes before a message is sent: who looks afterwards
        may find an end that has read it, and closed."""
        self.check()
        if self.out is not None and self.out.members() < 2:
            raise BrokenPipeError("the other end has closed the channel")

    # ---- what comes

    def next(self) -> Message | None:
        """Returns the next message, or None. Raises EOFError at the end."""
        self.check()
        if not self.switched and (message := self.read(wants=True)) is not None:
            return message
        ended = self.ended  # before the look: what the other end sent before it closed has come by then
        self.into_ready = bool(self.switched) and self.into is not None
        if self.into_ready and (message := self.into.take()) is not None:  # type: ignore[union-attr]
            return message
        if ended:
            if self.kind >= 0 or self.got:
                raise ConnectionResetError("the channel ended in the middle of a message")
            raise EOFError("the other end has closed the channel")
        return None

    def read(self, wants: bool) -> Message | None:
        """Reads what the stream has, as `pump`, if nobody else has the turn."""
        message = None
        if not self.has_turn(READING):
            return None
        try:
            try:
                self.check()
                message = self.pump(wants)
            finally:
                self.end_turn(READING)
        except ConnectionAbortedError:
            self.shut()
            self.close()
            raise
        self.flush()
        return message

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        alone = self.locks[READING].acquire(timeout=0.1)  # a thread that reads has done so
        for member in (self.out, self.into):
            if member is not None:
                member.close()
        if forks == self.forks:
            with contextlib.suppress(OSError):  # what nobody has read would make the end a reset
                while self.sock.recv(1 << 16):
                    pass
        self.sock.close()
        page, self.page = self.page, bytearray(self.page)
        page.close()
        self.file.close()
        if alone:
            self.locks[READING].release()


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
