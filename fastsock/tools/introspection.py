"""Looks at the fastsock processes of this user from outside: their threads answer (layouts: introspection.h).

A process is found by the abstract name of its connection thread, so it is seen if it shares this network namespace, and
once one of its connections has published a name or has moved. What the kernel knows (addresses, names of
programs, queues of kernel TCP) is read from /proc. Nobody is waited for longer than `PATIENCE`: a process that is
stopped is left out.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import socket as stdlib
import struct
import time
from collections.abc import Iterable, Iterator, Mapping

import attrs

from fastsock._native.connection_info import COUNTERS
from fastsock._native.control import (
    END_SHAPE,
    FLAGS,
    LOOK_MAGIC,
    LOOK_SHAPE,
    LOOKS,
    NO_MORE,
    PROCESS_SHAPE,
    SEEN_MAGIC,
    SEEN_SHAPE,
    VERSION,
)
from fastsock.path_policy import REASONS

__all__ = ["COUNTERS", "VERSION", "Connection", "Process", "look"]

_socket = stdlib.SocketType  # the kernel's, whatever is patched

LOOK = struct.Struct(LOOK_SHAPE)
SEEN = struct.Struct(SEEN_SHAPE)
PROCESS, ROLL, RING = LOOKS
SEEN_PROCESS = struct.Struct(PROCESS_SHAPE)
SEEN_END = struct.Struct(END_SHAPE)
SENDS, RECEIVES, EXPOSED, LOOP_DRIVEN, ASLEEP, WAITS, FELL_BACK = FLAGS
MARKS = {EXPOSED: "polled", LOOP_DRIVEN: "loop", ASLEEP: "sleeps", WAITS: "full", FELL_BACK: "left"}
PATIENCE = 0.5
"""Seconds in which the processes have to answer, all together."""
SO_PASSRIGHTS = 83
"""Linux 6.16: a socket can refuse descriptors. A stranger may send some whose last close takes for ever."""
PREFIX = "@fastsock/ask/"
SCM_CREDENTIALS = 2
TCP_STATES = {
    1: "ESTAB",
    2: "SYN-SENT",
    3: "SYN-RECV",
    4: "FIN-WAIT",
    5: "FIN-WAIT",
    7: "CLOSE",
    8: "CLOSE-WAIT",
    9: "LAST-ACK",
}


@attrs.frozen(kw_only=True)
class Connection:
    """One end of a TCP connection of a fastsock process."""

    inode: int
    local: str
    peer: str
    state: str
    """As the kernel names it: ESTAB, CLOSE-WAIT, ..."""
    path: str
    """"ring" once a direction has moved, else "tcp"."""
    reason: str
    """Why it is on kernel TCP; for "ring", which directions have moved."""
    peer_pid: int | None
    """The process at the other end, if it is a fastsock process that answered."""
    receive_queue: int
    """Bytes that the program has not read yet, in the ring and in the kernel."""
    send_queue: int
    """Bytes that the kernel has not delivered yet."""
    unconsumed: int
    """Descriptors in the ring that the peer has not taken yet."""
    credits: int | None
    """Descriptors that may be posted before the next acknowledgement; None: not on the ring."""
    window: int
    marks: tuple[str, ...]
    counters: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Process:
    """A fastsock process that answered."""

    pid: int
    command: str
    protocol: int
    """The version of the protocol that it speaks. Of one that speaks another than ours nothing below is known."""
    gone: Mapping[str, int]
    """Counters of its connections that have ended."""
    names: int
    """Connections that look for their peer just now."""
    connections: tuple[Connection, ...]

    def total(self, counter: str) -> int:
        """A counter of the process: of its connections that have ended and of those that live."""
        return self.gone[counter] + sum(connection.counters.get(counter, 0) for connection in self.connections)


@attrs.define
class _Answers:
    """What has come from one process so far."""

    name: bytes
    pid: int = 0
    protocol: int = VERSION
    process: tuple[int, ...] | None = None
    roll: dict[int, int] = attrs.field(factory=dict)
    ring: dict[int, tuple[int, ...]] = attrs.field(factory=dict)
    open: set[int] = attrs.field(factory=lambda: {PROCESS, ROLL, RING})
    """Kinds of which more is to come."""


def names(pids: set[int] | None = None) -> list[bytes]:
    """The connection threads' names in this network namespace, as addresses: all, or those of these processes."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        lines = [line.split() for line in table if PREFIX in line]
    found = {words[7]: words[6] for words in lines if len(words) == 8 and words[7].startswith(PREFIX)}
    if pids is not None:
        held = {inode for pid in pids for inode in sockets(pid)}
        found = {name: inode for name, inode in found.items() if int(inode) in held}
    return [b"\0" + name[1:].encode() for name in sorted(found)]


def sockets(pid: int) -> set[int]:
    """The inodes of a process's sockets; none if it is another user's."""
    return {int(link[8:-1]) for link in _links(pid) if link.startswith("socket:[")}


def _links(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return  # gone, or another user's
    for fd in descriptors:
        with contextlib.suppress(OSError):  # closed since; the others are there
            yield os.readlink(f"{folder}/{fd}")


def look(pids: set[int] | None = None, patience: float = PATIENCE) -> list[Process]:
    """The fastsock processes of this user, or those among `pids`, by pid. OSError if there is no socket to be had."""
    asker = _socket(stdlib.AF_UNIX, stdlib.SOCK_DGRAM | stdlib.SOCK_CLOEXEC | stdlib.SOCK_NONBLOCK)
    try:
        asker.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_PASSCRED, 1)
        with contextlib.suppress(OSError):
            asker.setsockopt(stdlib.SOL_SOCKET, SO_PASSRIGHTS, 0)
        asker.bind(b"")  # the kernel gives it an abstract name
        answers = _ask(asker, pids, patience)
    finally:
        asker.close()
    return _processes([one for one in answers if pids is None or one.pid in pids])


def _ask(asker: stdlib.SocketType, pids: set[int] | None, patience: float) -> list[_Answers]:
    asked = {int.from_bytes(os.urandom(8), "little"): _Answers(name) for name in names(pids)}
    until = time.monotonic() + patience
    waiting: dict[int, tuple[int, int]] = {}  # tag -> kind and first entry of the question that is under way

    def question(tag: int, kind: int, first: int) -> None:
        waiting[tag] = kind, first
        _send(asker, asked[tag].name, LOOK.pack(LOOK_MAGIC, tag, kind, first))

    for tag in asked:
        question(tag, PROCESS, 0)
    while waiting and time.monotonic() < until:
        if not select.select([asker], [], [], 0.05)[0]:
            for tag, (kind, first) in list(waiting.items()):  # a full queue, or one question too many in this second
                question(tag, kind, first)
            continue
        data, control, flags, _ = asker.recvmsg(1 << 16, 256)
        pid, user = _sender(control)
        if len(data) < SEEN.size or flags & stdlib.MSG_TRUNC or user not in (os.geteuid(), 0):
            continue
        magic, tag, kind, following, count, protocol = SEEN.unpack_from(data)
        if magic != SEEN_MAGIC or waiting.get(tag, (None,))[0] != kind:
            continue
        if protocol != VERSION:  # the records are not ours to read
            del waiting[tag]
            asked[tag].pid, asked[tag].protocol = pid, protocol
            asked[tag].open.clear()
            continue
        if not _take(asked[tag], pid, kind, count, data[SEEN.size :]):
            continue
        first = waiting.pop(tag)[1]
        if following != NO_MORE and following > first:
            question(tag, kind, following)
        elif kind < RING:
            question(tag, kind + 1, 0)
        else:
            asked[tag].open.clear()
    return [one for one in asked.values() if not one.open]


def _send(asker: stdlib.SocketType, name: bytes, question: bytes) -> None:
    who = struct.pack("3i", os.getpid(), os.geteuid(), os.getegid())
    try:
        asker.sendmsg([question], [(stdlib.SOL_SOCKET, SCM_CREDENTIALS, who)], 0, name)
    except OSError:
        pass  # gone since, or busy: it is asked again


def _sender(control: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    for level, kind, data in control:
        if (level, kind) == (stdlib.SOL_SOCKET, SCM_CREDENTIALS) and len(data) >= 12:
            pid, user, _ = struct.unpack_from("3i", data)
            return pid, user
    return 0, -1


def _take(into: _Answers, pid: int, kind: int, count: int, records: bytes) -> bool:
    """Whether the records are whole; they are kept then."""
    size = {PROCESS: SEEN_PROCESS.size, ROLL: 8, RING: SEEN_END.size}[kind]
    if len(records) != count * size:
        return False
    into.pid = pid
    if kind == PROCESS:
        into.process = SEEN_PROCESS.unpack(records)
    elif kind == ROLL:
        for (word,) in struct.iter_unpack("=Q", records):
            into.roll[word & ((1 << 56) - 1)] = word >> 56
    else:
        for end in SEEN_END.iter_unpack(records):
            into.ring[end[0]] = end
    return True


# ---- what the kernel knows ---------------------------------------------------------------------------------


@attrs.frozen
class _Kernel:
    local: str
    peer: str
    state: int
    send_queue: int
    receive_queue: int


def kernel_connections(listening: bool = False) -> dict[int, _Kernel]:
    """TCP sockets of this network namespace that are no listeners, or those that are, by inode."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _lines(table):
            words = line.split()
            state = int(words[3], 16)
            if (state == 10) != listening:
                continue
            send, receive = (int(word, 16) for word in words[4].split(":"))
            found[int(words[9])] = _Kernel(address(words[1]), address(words[2]), state, send, receive)
    return found


def _lines(table: str) -> list[str]:
    try:
        with open(table, encoding="ascii") as file:
            return file.read().splitlines()[1:]
    except OSError:
        return []  # a kernel without IPv6


def address(text: str) -> str:
    """An address of /proc/net/tcp as people write it: IPv4-mapped ones as IPv4."""
    packed, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(packed[i : i + 8], 16)) for i in range(0, len(packed), 8))
    ip = ipaddress.ip_address(raw)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    shown = f"[{ip}]" if isinstance(ip, ipaddress.IPv6Address) else str(ip)
    return f"{shown}:{int(port, 16)}"


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return "?"
    return command_line([word.decode(errors="replace") for word in words])  # (a zombie has none)


def command_line(words: Iterable[str]) -> str:
    """The words in one line. What a program is called must not move the cursor of who looks."""
    text = " ".join(word for word in words if word)
    return "".join(each if each.isprintable() else " " for each in text).strip() or "?"


def _processes(answers: list[_Answers]) -> list[Process]:
    kernel = kernel_connections()
    owners: dict[tuple[str, str], int] = {}
    for one in answers:
        for inode in one.roll:
            if inode in kernel:
                owners[kernel[inode].local, kernel[inode].peer] = one.pid
    processes = []
    count = len(COUNTERS)
    for one in answers:
        told = one.process if one.process is not None else (0,) * (count + 2)  # of another version
        processes.append(
            Process(
                pid=one.pid,
                command=command_of(one.pid),
                protocol=one.protocol,
                gone=dict(zip(COUNTERS, told[:count], strict=True)),
                names=told[count + 1],
                connections=tuple(sorted(_connections(one, kernel, owners), key=lambda each: each.inode)),
            )
        )
    return sorted(processes, key=lambda process: process.pid)


def _connections(one: _Answers, kernel: dict[int, _Kernel], owners: dict[tuple[str, str], int]) -> Iterator[Connection]:
    for inode, number in one.roll.items():
        known = kernel.get(inode)
        if known is None:  # a listener, or closed since
            continue
        end = one.ring.get(inode)
        flags = end[1] if end is not None else 0
        if flags & (SENDS | RECEIVES):
            both = flags & SENDS and flags & RECEIVES
            path, reason = "ring", "both directions" if both else "sending" if flags & SENDS else "receiving"
        else:
            path = "tcp"
            reason = REASONS[number - 1] if 0 < number <= len(REASONS) else "not moved yet"
        yield Connection(
            inode=inode,
            local=known.local,
            peer=known.peer,
            state=TCP_STATES.get(known.state, str(known.state)),
            path=path,
            reason=reason,
            peer_pid=owners.get((known.peer, known.local)),
            # (On the ring, what lies in the kernel is doorbell bytes.)
            receive_queue=(end[5] if end is not None else 0) + (0 if flags & RECEIVES else known.receive_queue),
            send_queue=0 if flags & SENDS else known.send_queue,
            unconsumed=end[3] if end is not None else 0,
            credits=end[4] if end is not None else None,
            window=end[2] if end is not None else 0,
            marks=tuple(mark for bit, mark in MARKS.items() if flags & bit),
            counters=dict(zip(COUNTERS, end[6:], strict=True)) if end is not None else {},
        )
