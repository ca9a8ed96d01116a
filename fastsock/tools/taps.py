"""Looks at the bytes of moved connections: offers pages to processes of this user (core/wire/tap_page.h), and makes
packets of what they show.

Each end shows what it sends and receives. Where both ends are looked at, the one that showed something first counts,
and of the other one only its end. Records of several processes come in the order of their times, after `SETTLED_NS`."""

from __future__ import annotations

import fcntl
import ipaddress
import mmap
import os
import socket as stdlib
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import attrs

from fastsock._native.control import TAP_ANSWERS, TAP_KINDS, TAP_MAGIC, TAP_SIZE, VERSION, Tap
from fastsock.tools import introspection
from fastsock.tools.pcapng import ACK, FIN, PSH, RST, SYN, Address

__all__ = ["Packet", "Taps"]

_socket = stdlib.SocketType  # the kernel's, whatever is patched

OFFER = struct.Struct("=QII16x")
BEGUN = struct.Struct("=2Q16sIII2I16s16s108s108s4x")
START, SENT, RECEIVED, FIN_SENT, FIN_RECEIVED, CLOSED, RESET, LEFT = TAP_KINDS
UNANSWERED, SHOWS, BUSY, REFUSED = TAP_ANSWERS
Record: TypeAlias = "tuple[int, int, int, int, int, bytes]"
"""Kind, monotonic ns, inode, position, length, data."""
REMARKS = {BUSY: "another observer looks at it", REFUSED: "it refuses: the setting tcpdump, or not dumpable (prctl(2))"}
SEALS = 7  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
ADD_SEALS = 1033
SCM_CREDENTIALS = 2
SETTLED_NS = 50_000_000
"""Age from which records of all processes are there."""
AT_ONCE = 4096
"""Records that are read of a process at a time."""
TRIES = 3
"""Times that a process is asked that does not answer: most likely it is another user's."""
PATIENCE = 0.2
"""Seconds for their answers."""
SEARCH_NS = 50_000_000
"""Time between two looks for new processes."""
UNSEEN = "; its beginning was not seen"
UNIX_ENDS = ipaddress.ip_address("127.85.0.1"), ipaddress.ip_address("127.85.0.2")
"""Addresses that the ends of a unix stream are shown with: the one that has a path, and the other one."""


@attrs.frozen
class Packet:
    """A segment of a TCP stream."""

    process: Process
    when: int
    """ns since 1970."""
    flow: Flow
    side: int
    """Of the sender, 0 or 1."""
    flags: int
    seq: int
    ack: int
    data: bytes
    length: int
    """Bytes of the stream, of which `data` is the beginning."""
    comment: str
    outbound: bool
    """It was sent by the process that showed it."""


@attrs.define(eq=False)
class Flow:
    """A connection: its two sides, by their part in the rendezvous."""

    side: int
    """The one whose process shows it."""
    ends: tuple[tuple[Address, int], tuple[Address, int]]
    names: tuple[str, str]
    """The paths of a unix stream; empty otherwise."""
    comment: str
    reached: list[int]
    """Of each side: bytes of its stream so far."""
    begun: bool = False
    ended: list[bool] = attrs.field(factory=lambda: [False, False])
    held: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """Open ends: process and inode -> side."""


@attrs.define(eq=False)
class Process:
    """A process that is looked at."""

    pid: int
    command: str
    memory: mmap.mmap
    tap: Tap
    ends: dict[int, tuple[bytes, Flow, int]] = attrs.field(factory=dict)
    """Inode -> the region, the connection, and the side of this end."""
    answer: int = UNANSWERED
    over: bool = False
    """It has ended, or shows nothing."""
    unread: list[Record] = attrs.field(factory=list)
    """Records that are too young yet."""
    dropped: int = 0
    """Records that found no room."""
    interface: int = -1
    """For who writes the packets."""

    def read(self, last: bool) -> None:
        """`last`: all that the page has room for."""
        for _ in range(TAP_SIZE // 40 // AT_ONCE + 1 if last else 1):
            self.unread += (records := self.tap.read(AT_ONCE))
            if not records:
                break
        self.dropped = self.tap.dropped

    def close(self) -> None:
        """Ends the looking at once."""
        self.tap.close()
        self.memory.close()


class Taps:
    """All processes of this user, or those in `pids`. `remark` gets what is to be told to the user."""

    def __init__(self, pids: set[int] | None, snaplen: int, port: int, remark: Callable[[str], None]) -> None:
        self.pids, self.snaplen, self.port, self.remark = pids, snaplen, port, remark
        self.processes: dict[bytes, Process] = {}
        self.flows: dict[bytes, Flow] = {}
        self.tries: dict[bytes, int] = {}
        self.past: list[Process] = []
        """Those that have ended, or show nothing."""
        self.searched = 0

    # ---- the processes

    def search(self) -> None:
        """Looks, now and then, for processes that have come or gone."""
        now = time.monotonic_ns()
        if now - self.searched < SEARCH_NS:
            return
        self.searched = now
        names = set(introspection.names(self.pids))
        for name in self.processes.keys() - names:
            self.processes[name].over = True
        self.tries = {name: count for name, count in self.tries.items() if name in names}
        fresh = {name for name in names - self.processes.keys() if self.tries.get(name, 0) < TRIES}
        for name in fresh:
            self.tries[name] = self.tries.get(name, 0) + 1
        for name, pid in introspection.present(sorted(fresh), PATIENCE).items() if fresh else ():
            if pid != os.getpid() and (self.pids is None or pid in self.pids):
                self._offer(name, pid)

    def _offer(self, name: bytes, pid: int) -> None:
        """Offers a page. (A process whose queue is full is asked again.)"""
        sender = _socket(stdlib.AF_UNIX, stdlib.SOCK_DGRAM | stdlib.SOCK_CLOEXEC | stdlib.SOCK_NONBLOCK)
        memfd = os.memfd_create("fastsock-tcpdump", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(memfd, TAP_SIZE)
            fcntl.fcntl(memfd, ADD_SEALS, SEALS)
            credentials = struct.pack("3i", os.getpid(), os.geteuid(), os.getegid())
            comes_with = [
                (stdlib.SOL_SOCKET, SCM_CREDENTIALS, credentials),
                (stdlib.SOL_SOCKET, stdlib.SCM_RIGHTS, struct.pack("i", memfd)),
            ]
            memory = mmap.mmap(memfd, TAP_SIZE)
            process = Process(pid, introspection.command_of(pid), memory, Tap(memory, self.snaplen, self.port))
            sender.sendmsg([OFFER.pack(TAP_MAGIC, VERSION, 0)], comes_with, 0, name)
            self.processes[name] = process
        except (BlockingIOError, ConnectionRefusedError):
            pass  # it is busy, or has ended
        finally:
            os.close(memfd)
            sender.close()

    def lost(self) -> int:
        """Returns how many records found no room."""
        return sum(process.dropped for process in [*self.past, *self.processes.values()])

    def close(self) -> None:
        for process in self.processes.values():
            process.close()

    # ---- the packets

    def packets(self, last: bool = False) -> Iterator[Packet]:
        """What was shown since, in order of time. `last`: also what may not be in order yet."""
        now, epoch = time.monotonic_ns(), time.time_ns() - time.monotonic_ns()
        due: list[tuple[int, Process, Record]] = []
        for process in self.processes.values():
            process.read(last or process.over)
            if process.answer == UNANSWERED and process.tap.answer != UNANSWERED:
                process.answer = process.tap.answer
                if process.answer in REMARKS:
                    process.over = True
                    self.remark(f"{process.pid} ({process.command}): {REMARKS[process.answer]}")
            until = now if last or process.over else now - SETTLED_NS
            due += [(record[1], process, record) for record in process.unread if record[1] <= until]
            process.unread = [record for record in process.unread if record[1] > until]
        due.sort(key=lambda each: each[0])
        for when, process, record in due:
            yield from self._packets(process, when + epoch, record)
        for name, process in [*self.processes.items()]:
            if process.over:
                yield from self._end_all(process, time.time_ns())
                self.past.append(process)
                self.tries[name] = TRIES
                process.close()
                del self.processes[name]

    def _packets(self, process: Process, when: int, record: Record) -> Iterator[Packet]:
        kind, _, inode, position, length, data = record
        if kind == START and len(data) == BEGUN.size:
            self._begin(process, inode, data)
            return
        if inode not in process.ends:
            return
        _, flow, own = process.ends[inode]
        side = 1 - own if kind in (RECEIVED, FIN_RECEIVED) else own

        def made(flags: int, seq: int, data: bytes = b"", length: int = 0, by: int = side) -> Packet:
            # The numbers of TCP: 0 is that of the SYN, and the first byte has 1.
            ack = flow.reached[1 - by] + 1 + flow.ended[1 - by]
            comment, flow.comment = flow.comment, ""
            return Packet(process, when, flow, by, flags, seq, ack, data, length, comment, by == own)

        if kind in (SENT, RECEIVED) and flow.side == own:
            if not flow.begun and position == flow.reached[1 - side] == 0:
                flow.comment = flow.comment.removesuffix(UNSEEN)
                flow.reached = [0, 0]
                client = 0 if flow.ends[0][1] >= flow.ends[1][1] else 1
                yield made(SYN, 0, by=client)
                yield attrs.evolve(made(SYN | ACK, 0, by=1 - client), ack=1)
                yield made(ACK, 1, by=client)
            flow.begun = True
            yield made(PSH | ACK, position + 1, data, length)
            flow.reached[side] = max(flow.reached[side], position + length)
        elif kind in (FIN_SENT, FIN_RECEIVED, CLOSED, RESET) and not flow.ended[side]:
            flow.reached[side] = max(flow.reached[side], position)
            yield made((RST if kind == RESET else FIN) | ACK, flow.reached[side] + 1)
            flow.ended = [True, True] if kind == RESET else [flow.ended[by] or by == side for by in (0, 1)]
        if kind in (CLOSED, RESET, LEFT):
            self._forget(process, inode)

    def _begin(self, process: Process, inode: int, data: bytes) -> None:
        """An end is seen first."""
        sent, received, region, side, peer, size, *rest = BEGUN.unpack(data)
        ports, addresses, paths = rest[:2], rest[2:4], rest[4:]
        side &= 1
        before = process.ends.get(inode)
        if before is not None and before[0] == region and before[2] == side:
            return  # two threads have introduced it
        names = [os.fsdecode(path.rstrip(b"\0")) for path in paths]
        what = "" if size else f"{names[0] or names[1] or 'unnamed'} (unix stream), "
        comment = f"{what}pid {process.pid} {process.command[:60]}, peer pid {peer or 'unknown'}"
        if sent or received:
            comment += UNSEEN
        near, far = (
            [(ipaddress.ip_address(addresses[i][:size]), ports[i] & 0xFFFF) for i in range(2)]
            if size
            else _unix_ends(names, region)
        )
        fresh = Flow(0, (near, far), (names[0], names[1]), comment, [sent, received])
        if side:
            fresh = Flow(1, (far, near), (names[1], names[0]), comment, [received, sent])
        flow = self.flows.get(region, fresh)
        # The region may have been another connection's, of whose end nothing was heard.
        if flow.ends != fresh.ends or any(pid == process.pid and end == side for (pid, _), end in flow.held.items()):
            flow = fresh
        self.flows[region] = flow
        flow.held[process.pid, inode] = side
        process.ends[inode] = region, flow, side

    def _forget(self, process: Process, inode: int) -> None:
        region, flow, _ = process.ends.pop(inode)
        flow.held.pop((process.pid, inode), None)
        if not flow.held and self.flows.get(region) is flow:
            del self.flows[region]

    def _end_all(self, process: Process, when: int) -> Iterator[Packet]:
        """The process has ended without closing these: the kernel has."""
        for inode, (_, flow, side) in [*process.ends.items()]:
            self._forget(process, inode)
            if flow.begun and not flow.ended[side] and side not in flow.held.values():
                seq, ack = flow.reached[side] + 1, flow.reached[1 - side] + 1 + flow.ended[1 - side]
                flow.ended[side] = True
                comment = f"pid {process.pid} has ended"
                yield Packet(process, when, flow, side, FIN | ACK, seq, ack, b"", 0, comment, outbound=True)


def _unix_ends(names: list[str], region: bytes) -> list[tuple[Address, int]]:
    """Addresses for the ends of a unix stream, this one's first. The port of the end with a path is always the same."""
    named = next((name for name in names if name), "")
    service = UNIX_ENDS[0], 1024 + zlib.crc32(os.fsencode(named) or region) % 31744
    other = UNIX_ENDS[1], 32768 + zlib.crc32(region) % 32768
    return [service, other] if names[0] or not names[1] else [other, service]
