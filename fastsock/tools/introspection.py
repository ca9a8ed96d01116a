"""Queries the fastsock processes of this user. Their connection threads answer (layouts: introspection.h).

A process is found by the abstract socket name of its connection thread. So it must share this network namespace, and
must have published a name or moved a connection before; `unmet` finds the others. Addresses, command lines and queues
of kernel TCP come from /proc. Processes that do not answer within `PATIENCE`, such as stopped ones, are left out.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import select
import socket as stdlib
import struct
import time
from collections.abc import Iterable, Iterator, Mapping

import attrs

from fastsock._native import control
from fastsock._native.libc_front import COUNTERS
from fastsock.path_events import REASONS
from fastsock.tools.unix_streams import unix_streams, unix_table

__all__ = ["COUNTERS", "VERSION", "Connection", "Link", "Process", "query"]

_socket = stdlib.SocketType  # the kernel's, whatever is patched

LOOK_MAGIC, SEEN_MAGIC, VERSION = control.LOOK_MAGIC, control.SEEN_MAGIC, control.VERSION
QUERY = struct.Struct(control.LOOK_SHAPE)
SEEN = struct.Struct(control.SEEN_SHAPE)
PROCESS, ROLL, RING, LINKS = control.LOOKS
SEEN_PROCESS = struct.Struct(control.PROCESS_SHAPE)
SEEN_END = struct.Struct(control.END_SHAPE)
SEEN_LINK = struct.Struct(control.LINK_SHAPE)
SENDS, RECEIVES, LOOP_DRIVEN, ASLEEP, WAITS, FELL_BACK = control.FLAGS
MARKS = {LOOP_DRIVEN: "loop", ASLEEP: "sleeps", WAITS: "full", FELL_BACK: "left"}
UNMET = "has met no peer yet"
"""Why connections of a process without a connection thread are on kernel TCP."""
PATIENCE = 0.5
"""Seconds in which all processes must answer."""
SO_PASSRIGHTS = 83
"""Linux 6.16: a socket can refuse descriptors. An untrusted user may send some whose last close blocks for ever."""
PREFIX = "@fastsock/ask/"
SCM_CREDENTIALS = 2
NOBODY = (1 << 32) - 1  # a user who is unknown

TCP_STATES = {
    1: "ESTAB", 2: "SYN-SENT", 3: "SYN-RECV", 4: "FIN-WAIT", 5: "FIN-WAIT", 7: "CLOSE", 8: "CLOSE-WAIT", 9: "LAST-ACK",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Connection:
    """One end of a TCP connection of a fastsock process."""

    inode: int
    local: str
    peer: str
    state: str
    """The kernel's name of the state: ESTAB, CLOSE-WAIT, ..."""
    path: str
    """"ring" if at least one direction has moved, else "tcp"."""
    reason: str
    """Why the connection is in the kernel; for "ring", the directions that have moved."""
    peer_pid: int | None
    """The process at the other end, if it answered too."""
    receive_queue: int
    """Bytes that the program has not read, in the ring and in the kernel."""
    send_queue: int
    """Bytes that the kernel has not delivered."""
    unconsumed: int
    """Descriptors in the ring that the peer has not consumed."""
    credits: int | None
    """Descriptors that may be posted before the next acknowledgement; None if not on the ring."""
    window: int
    marks: tuple[str, ...]
    counters: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Link:
    """What a process has in common with another one (docs/moving.md)."""

    peer_pid: int | None
    """None: it is in another PID namespace."""
    peer: str
    """Its command."""
    user: int | None
    """None: unknown, as of a process in another network namespace."""
    in_use: int
    """Regions of connections."""
    parked: int
    """Regions that wait for the next connection."""
    bytes: int
    """What of them counts against the setting `memory_cap`."""
    made: int
    """Connections so far that have moved."""


@attrs.frozen(kw_only=True)
class Process:
    """A fastsock process that answered."""

    pid: int
    command: str
    protocol: int
    """The version of its protocol. If it is not VERSION, the fields below are empty."""
    gone: Mapping[str, int]
    """Counters of its connections that have ended."""
    names: int
    """Connections that are looking for their peer."""
    connections: tuple[Connection, ...]
    links: tuple[Link, ...] = ()

    def total(self, counter: str) -> int:
        """Returns a counter of the process, summed over ended and live connections."""
        return self.gone[counter] + sum(connection.counters.get(counter, 0) for connection in self.connections)


@attrs.define
class _Answers:
    """The answers of one process so far."""

    name: bytes
    pid: int = 0
    protocol: int = VERSION
    process: tuple[int, ...] | None = None
    roll: dict[int, int] = attrs.field(factory=dict)
    ring: dict[int, tuple[int, ...]] = attrs.field(factory=dict)
    links: list[tuple[int, ...]] = attrs.field(factory=list)
    open: set[int] = attrs.field(factory=lambda: set(control.LOOKS))
    """Kinds of records that are not complete yet."""


def names(pids: set[int] | None = None) -> list[bytes]:
    """Returns the socket addresses of connection threads in this network namespace: all, or those of `pids`."""
    found = _threads()
    if pids is not None:
        held = {inode for pid in pids for inode in sockets(pid)}
        found = {name: inode for name, inode in found.items() if int(inode) in held}
    return [b"\0" + name[1:].encode() for name in sorted(found)]


def _threads() -> dict[str, str]:
    """Returns the names of connection threads in this network namespace, and the inodes of their sockets."""
    return {words[7]: words[6] for words in unix_table() if words[7:] and words[7].startswith(PREFIX)}


def sockets(pid: int) -> set[int]:
    """Returns the inodes of a process's sockets; none for a process of another user."""
    return {int(link[8:-1]) for link in _links(pid) if link.startswith("socket:[")}


def _links(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return  # ended, or of another user
    for fd in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(f"{folder}/{fd}")


def query(pids: set[int] | None = None, patience: float = PATIENCE) -> list[Process]:
    """Returns the fastsock processes of this user (only those in `pids`, if given), sorted by pid. Raises OSError if no
    socket can be created."""
    return _processes([one for one in _answers(names(pids), patience, LINKS) if pids is None or one.pid in pids])


def present(asked: list[bytes], patience: float) -> dict[bytes, int]:
    """Returns which of these connection threads answer, of this protocol, and their processes."""
    return {one.name: one.pid for one in _answers(asked, patience, PROCESS) if one.protocol == VERSION}


def _answers(asked: list[bytes], patience: float, last: int) -> list[_Answers]:
    """`last`: the last kind of records to ask for."""
    requester = _socket(stdlib.AF_UNIX, stdlib.SOCK_DGRAM | stdlib.SOCK_CLOEXEC | stdlib.SOCK_NONBLOCK)
    try:
        requester.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_PASSCRED, 1)
        with contextlib.suppress(OSError):
            requester.setsockopt(stdlib.SOL_SOCKET, SO_PASSRIGHTS, 0)
        requester.bind(b"")  # autobind: the kernel chooses an abstract name
        return _query_all(requester, asked, patience, last)
    finally:
        requester.close()


def _query_all(requester: stdlib.SocketType, to: list[bytes], patience: float, last: int) -> list[_Answers]:
    asked = {int.from_bytes(os.urandom(8), "little"): _Answers(name) for name in to}
    until = time.monotonic() + patience
    waiting: dict[int, tuple[int, int]] = {}  # tag -> kind and first entry of the pending query

    def request(tag: int, kind: int, first: int) -> None:
        waiting[tag] = kind, first
        _send(requester, asked[tag].name, QUERY.pack(LOOK_MAGIC, tag, kind, first))

    for tag in asked:
        request(tag, PROCESS, 0)
    while waiting and time.monotonic() < until:
        if not select.select([requester], [], [], 0.05)[0]:
            for tag, (kind, first) in list(waiting.items()):  # its queue was full, or it limits queries per second
                request(tag, kind, first)
            continue
        data, came, flags, _ = requester.recvmsg(1 << 16, 256)
        pid, user = _sender(came)
        if len(data) < SEEN.size or flags & stdlib.MSG_TRUNC or user not in (os.geteuid(), 0):
            continue
        magic, tag, kind, following, count, protocol = SEEN.unpack_from(data)
        if magic != SEEN_MAGIC or waiting.get(tag, (None,))[0] != kind:
            continue
        if protocol != VERSION:  # records of another version have an unknown layout
            del waiting[tag]
            asked[tag].pid, asked[tag].protocol = pid, protocol
            asked[tag].open.clear()
            continue
        if not _take(asked[tag], pid, kind, count, data[SEEN.size :]):
            continue
        first = waiting.pop(tag)[1]
        if following != control.NO_MORE and following > first:
            request(tag, kind, following)
        elif kind < last:
            request(tag, kind + 1, 0)
        else:
            asked[tag].open.clear()
    return [one for one in asked.values() if not one.open]


def _send(requester: stdlib.SocketType, name: bytes, query: bytes) -> None:
    credentials = struct.pack("3i", os.getpid(), os.geteuid(), os.getegid())
    try:
        requester.sendmsg([query], [(stdlib.SOL_SOCKET, SCM_CREDENTIALS, credentials)], 0, name)
    except OSError:
        pass  # the process has ended, or is busy and will be asked again


def _sender(came: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    for level, kind, data in came:
        if (level, kind) == (stdlib.SOL_SOCKET, SCM_CREDENTIALS) and len(data) >= 12:
            pid, user, _ = struct.unpack_from("3i", data)
            return pid, user
    return 0, -1


def _take(into: _Answers, pid: int, kind: int, count: int, records: bytes) -> bool:
    """Stores the records. Returns false if they are not complete."""
    size = {PROCESS: SEEN_PROCESS.size, ROLL: 8, RING: SEEN_END.size, LINKS: SEEN_LINK.size}[kind]
    if len(records) != count * size:
        return False
    into.pid = pid
    if kind == PROCESS:
        into.process = SEEN_PROCESS.unpack(records)
    elif kind == ROLL:
        for (word,) in struct.iter_unpack("=Q", records):
            into.roll[word & ((1 << 56) - 1)] = word >> 56
    elif kind == LINKS:
        into.links += SEEN_LINK.iter_unpack(records)
    else:
        for end in SEEN_END.iter_unpack(records):
            into.ring[end[0]] = end
    return True


# ---- /proc -------------------------------------------------------------------------------------------------


@attrs.frozen
class _Kernel:
    local: str
    peer: str
    state: int
    send_queue: int
    receive_queue: int
    user: int = 0
    other: int = 0  # of a unix stream: the inode of the other end


def kernel_connections(listening: bool = False, of: int | None = None) -> dict[int, _Kernel]:
    """Returns the TCP sockets by inode: the listening ones, or the others. They are those of this network namespace, or
    of that of the process `of`."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in _lines(f"/proc/{'self' if of is None else of}/net/{table}"):
            words = line.split()
            state = int(words[3], 16)
            if (state == 10) != listening:
                continue
            send, receive = (int(word, 16) for word in words[4].split(":"))
            found[int(words[9])] = _Kernel(address(words[1]), address(words[2]), state, send, receive, int(words[7]))
    return found


def unix_connections() -> dict[int, _Kernel]:
    """Returns the connected stream sockets of AF_UNIX by inode."""
    told = unix_streams().items()
    return {inode: _Kernel(name, peer, 1, 0, 0, other=other) for inode, (name, peer, other) in told}


def _lines(table: str) -> list[str]:
    try:
        with open(table, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()[1:]
    except OSError:
        return []  # a kernel without IPv6


def address(text: str) -> str:
    """Returns an address of /proc/net/tcp in the usual notation; IPv4-mapped ones as IPv4."""
    packed, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(packed[i : i + 8], 16)) for i in range(0, len(packed), 8))
    ip = ipaddress.ip_address(raw)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    shown = f"[{ip}]" if isinstance(ip, ipaddress.IPv6Address) else str(ip)
    return f"{shown}:{int(port, 16)}"


def has_fastsock(pid: int) -> bool | None:
    """Returns whether a process uses fastsock; None if it cannot be known, as for a process of another user."""
    return _loaded(pid)[0]


def _loaded(pid: int) -> tuple[bool | None, bool]:
    """Returns `has_fastsock`, and whether `fastsock run` is why, as far as can be seen."""
    try:
        python = os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            maps = file.read()
        with open(f"/proc/{pid}/environ", "rb") as file:  # (other programs write over theirs)
            below_run = b"\0FASTSOCK_RUN=1\0" in b"\0" + file.read()
    except OSError:
        return None, False
    if "/fastsock/_native/_core." in maps:
        return True, below_run
    # Below `fastsock run` the library does nothing in an interpreter that it was preloaded in (interpose/settings.c),
    # but in one that cannot have the package: sitecustomize puts it in place with ctypes.
    has = "/fastsock/libfastsock.so" in maps and (not (below_run and python) or "/_ctypes." in maps)
    return has, has and (below_run or not python)


def unmet(pids: set[int] | None = None) -> list[Process]:
    """Returns the processes of this user (only those in `pids`, if given) that `fastsock run` serves and that have met
    no peer yet. They have no connection thread, so they answer no query: /proc shows them and their connections."""
    kernel = kernel_connections()
    threads = {int(inode) for inode in _threads().values()}
    found = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid == os.getpid() or (pids is not None and pid not in pids) or not _is_served(pid):
            continue
        own = sockets(pid)
        if not own & threads:
            ends = tuple(_unmet(inode, kernel[inode]) for inode in sorted(own & kernel.keys()))
            gone = dict.fromkeys(COUNTERS, 0)
            found.append(
                Process(pid=pid, command=command_of(pid), protocol=VERSION, gone=gone, names=0, connections=ends)
            )
    return found


def _is_served(pid: int) -> bool:
    """Returns true if a process of this user, in this network namespace, is served below `fastsock run`."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return False
    except OSError:
        return False
    return _loaded(pid)[1]


def _unmet(inode: int, known: _Kernel) -> Connection:
    return Connection(
        inode=inode,
        local=known.local,
        peer=known.peer,
        state=TCP_STATES.get(known.state, str(known.state)),
        path="tcp",
        reason=UNMET,
        peer_pid=None,
        receive_queue=known.receive_queue,
        send_queue=known.send_queue,
        unconsumed=0,
        credits=None,
        window=0,
        marks=(),
        counters={},
    )


def user_name(user: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return str(user)


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return "?"
    return command_line([word.decode(errors="replace") for word in words])  # empty for a zombie


def command_line(words: Iterable[str]) -> str:
    """Returns the words as one line, without control characters, which could move the terminal's cursor."""
    text = " ".join(word for word in words if word)
    return "".join(each if each.isprintable() else " " for each in text).strip() or "?"


def _processes(answers: list[_Answers]) -> list[Process]:
    kernel = kernel_connections()
    owners: dict[tuple[str, str], int] = {}
    holders: dict[int, list[int]] = {}
    if any(inode not in kernel for one in answers for inode in one.roll):
        kernel |= unix_connections()
    for one in answers:
        for inode in one.roll:
            if inode in kernel:
                owners[kernel[inode].local, kernel[inode].peer] = one.pid
                holders.setdefault(inode, []).append(one.pid)
    processes = []
    count = len(COUNTERS)
    for one in answers:
        told = one.process if one.process is not None else (0,) * (count + 2)  # another version
        processes.append(
            Process(
                pid=one.pid,
                command=command_of(one.pid),
                protocol=one.protocol,
                gone=dict(zip(COUNTERS, told[:count], strict=True)),
                names=told[count + 1],
                connections=tuple(sorted(_connections(one, kernel, owners, holders), key=lambda each: each.inode)),
                links=tuple(sorted(map(_link, one.links), key=lambda each: each.peer_pid or 0)),
            )
        )
    return sorted(processes, key=lambda process: process.pid)


def _link(told: tuple[int, ...]) -> Link:
    counted, connections, peer, user, in_use, parked = told
    return Link(
        peer_pid=peer or None,
        peer=command_of(peer) if peer else "?",
        user=None if user == NOBODY else user,
        in_use=in_use,
        parked=parked,
        bytes=counted,
        made=connections,
    )


def _connections(
    one: _Answers, kernel: dict[int, _Kernel], owners: dict[tuple[str, str], int], holders: dict[int, list[int]]
) -> Iterator[Connection]:
    for inode, number in one.roll.items():
        known = kernel.get(inode)
        if known is None:  # a listener, or closed meanwhile
            continue
        end = one.ring.get(inode)
        flags = end[1] if end is not None else 0
        if flags & (SENDS | RECEIVES):
            both = flags & SENDS and flags & RECEIVES
            path, reason = "ring", "both directions" if both else "sending" if flags & SENDS else "receiving"
        else:
            path = "tcp"
            reason = REASONS[number - 1] if 0 < number <= len(REASONS) else "not moved yet"
        at_other = sorted(holders.get(known.other, []), key=one.pid.__eq__)  # (of a shared pair this process has both)
        yield Connection(
            inode=inode,
            local=known.local,
            peer=known.peer,
            state=TCP_STATES.get(known.state, str(known.state)),
            path=path,
            reason=reason,
            peer_pid=next(iter(at_other), None) if known.other else owners.get((known.peer, known.local)),
            # Once a direction has moved, nothing of it lies in the kernel.
            receive_queue=(end[5] if end is not None else 0) + (0 if flags & RECEIVES else known.receive_queue),
            send_queue=0 if flags & SENDS else known.send_queue,
            unconsumed=end[3] if end is not None else 0,
            credits=end[4] if end is not None else None,
            window=end[2] if end is not None else 0,
            marks=tuple(mark for bit, mark in MARKS.items() if flags & bit),
            counters=dict(zip(COUNTERS, end[6:], strict=True)) if end is not None else {},
        )
