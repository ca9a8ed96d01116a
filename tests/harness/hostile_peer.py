"""A peer written by hand: it speaks the rendezvous and the ring from the protocol's description alone.

Nothing of fastsock is used on this side, so that it can also say and write what fastsock never would. The
constants below repeat `core/wire/region.h` on purpose. The other end, ``victim``, is a fastsock socket.
"""

import contextlib
import ctypes
import fcntl
import gc
import mmap
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastsock
from fastsock import path_events
from fastsock._native import control, libc_front
from harness.pairs import FUTEX, SECONDS, KernelSocket, Task, bind_beside, make_pair, state_of, until

LIBC = ctypes.CDLL(None, use_errno=True)

MAGIC = int.from_bytes(b"fastsock", "little")
VERSION = 8
HELLO = struct.Struct("=QIIQ16s")  # magic, version, reuse, size, id
REQUEST = struct.Struct("=QII16s")  # magic, version, side, id
ASK_MAGIC = int.from_bytes(b"fs-ask-1", "little")
NAME = "\0fastsock/tcp/"
ASK_NAME = "\0fastsock/ask/"
LINE = 64
SPARES = 2 * 4456448  # bytes of the spare parts of an arena
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

DATA = 1
INLINED, SEALED, OPEN = 1, 2, 3
ASLEEP, SET_ASLEEP, GONE = 1, 2, 4
FIN, RESET, BACK = 1 << 32, 2 << 32, 3 << 32
READY, LEFT, TOO_LATE = 1, 2, 3
GO_ON, RETURNING, REFUSED = 1, 2, 3
TAKEN = 1

# Byte offsets in the region's first two lines, and in a half.
REGION = {"magic": (0, 8), "version": (8, 4), "window": (12, 4), "slots": (16, 4), "chunk": (20, 4),
          "arena": (24, 4), "kind": (28, 4), "wakeup": (64, 4), "done0": (68, 4), "done1": (72, 4),
          "asks0": (80, 8), "asks1": (88, 8), "set0": (96, 8), "set1": (104, 8),
          "asks_else0": (112, 8), "asks_else1": (120, 8)}  # fmt: skip
HALF = {"fin": (0, 8), "switch_at": (8, 8), "credit_wait": (16, 4), "processor": (20, 4), "returned": (24, 4),
        "limited": (28, 4), "credit_futex": (32, 4), "acked": (64, 4), "doorbell": (68, 4), "ready": (72, 4),
        "finack": (76, 4), "limit": (80, 4), "settled": (84, 4), "futex": (88, 4), "seen": (128, 4)}  # fmt: skip
HALF_SIZE = 3 * LINE


class Region:
    """The shared memory of one connection, with geometry of its own whatever its header says."""

    def __init__(self, memfd: int, size: int, window: int, chunk: int) -> None:
        self.map = mmap.mmap(memfd, size)
        self.size, self.window, self.chunk = size, window, chunk
        self.slots = 1 << (window - 1).bit_length()
        self.near = -(4 * LINE + 2 * (HALF_SIZE + self.slots * LINE)) % 4096 // 2
        self.arena = self.near + window * chunk
        # Whole words are stored at once through these, as the protocol demands.
        self._bytes = memoryview(self.map)
        self._words = {4: self._bytes.cast("I"), 8: self._bytes.cast("Q")}

    @staticmethod
    def size_of(window: int, chunk: int) -> int:
        """Bytes of a region of this geometry."""
        slots = 1 << (window - 1).bit_length()
        near_parts_end = (4 * LINE + 2 * (HALF_SIZE + slots * LINE) + 4095) & ~4095
        return (near_parts_end + 2 * window * chunk + 2 * SPARES + 4095) & ~4095

    def close(self) -> None:
        for view in (*self._words.values(), self._bytes):
            view.release()
        self.map.close()

    def __getitem__(self, field: str) -> int:
        offset, width = REGION[field]
        return self._words[width][offset // width]

    def __setitem__(self, field: str, value: int) -> None:
        offset, width = REGION[field]
        self._words[width][offset // width] = value

    def format(self, region_id: bytes) -> None:
        """Writes a sound header."""
        self.map[32:48] = region_id
        for field, value in (("version", VERSION), ("window", self.window), ("slots", self.slots),
                             ("chunk", self.chunk), ("arena", self.arena), ("magic", MAGIC)):  # fmt: skip
            self[field] = value

    def half(self, number: int) -> int:
        return 4 * LINE + number * (HALF_SIZE + self.slots * LINE)

    def get(self, half: int, field: str) -> int:
        offset, width = HALF[field]
        return self._words[width][(self.half(half) + offset) // width]

    def set(self, half: int, field: str, value: int) -> None:
        offset, width = HALF[field]
        self._words[width][(self.half(half) + offset) // width] = value

    def ring(self, half: int, word: str) -> None:
        """Changes a futex, and wakes whoever sleeps on it."""
        self.set(half, word, (self.get(half, word) + 1) & 0xFFFFFFFF)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + self.half(half) + HALF[word][0]
        LIBC.syscall(ctypes.c_long(int(FUTEX)), ctypes.c_void_p(address), 1, 1 << 30, None, None, 0)

    def descriptor(self, half: int, number: int) -> int:
        return self.half(half) + HALF_SIZE + number % self.slots * LINE

    def post(self, half: int, number: int, payload: bytes, ack: int = 0, **lies: int) -> None:
        """A descriptor, sound but for the ``lies`` about its seq, length, type, state and offset."""
        at = self.descriptor(half, number)
        fits = len(payload) <= 48
        # No payload lies in both parts of the arena.
        gap = self.window * self.chunk if half else self.near
        offset = 0 if len(payload) <= self.near else self.near + gap
        lie = {"seq": number + 1, "length": len(payload), "type": DATA, "state": INLINED if fits else SEALED,
               "offset": offset, **lies}  # fmt: skip
        start = 4 * LINE + 2 * (HALF_SIZE + self.slots * LINE) + half * self.near + offset
        if fits:
            start = at + 16
        self.map[start : start + len(payload)] = payload
        self._words[4][at // 4 + 2] = ack
        self._words[4][at // 4 + 3] = lie["offset"]
        commit = lie["seq"] | lie["length"] << 32 | (lie["type"] & 15) << 56 | (lie["state"] & 15) << 60
        self._words[8][at // 8] = commit

    def commit(self, half: int, number: int) -> tuple[int, int]:
        """Sequence and length in a descriptor's commit word."""
        word = self._words[8][self.descriptor(half, number) // 8]
        return word & 0xFFFFFFFF, word >> 32 & 0xFFFF

    def inlined(self, half: int, number: int) -> bytes:
        """The payload of a small descriptor."""
        at = self.descriptor(half, number) + 16
        return self.map[at : at + self.commit(half, number)[1]]


def order(end: tuple[str, int]) -> tuple[int, int]:
    """The end for which this is smaller publishes the name. IPv4 only, which is all a hostile peer needs."""
    return end[1], int.from_bytes(socket.inet_aton(end[0]), "big")


class Peer:
    """A kernel TCP connection to ``victim``, and everything a peer can do beside it.

    ``publishes`` says which role the peer takes; the victim has the other one.
    """

    def __init__(self, publishes: bool, window: int = 4, chunk: int = 1024) -> None:
        self.window, self.chunk = window, chunk
        self.side = int(publishes)
        self.region: Region | None = None
        self.control: socket.socket | None = None
        self.sent = 0  # bytes through the kernel
        self.posted = 0
        self.id = os.urandom(16)
        self.tcp, self.victim = self._connection(publishes)
        first, second = sorted((self.tcp.getsockname(), self.tcp.getpeername()), key=order)
        self.name = f"{NAME}{first[0]}:{first[1]}-{second[0]}:{second[1]}".encode()

    @staticmethod
    def _connection(publishes: bool) -> tuple[socket.socket, socket.socket]:
        with fastsock.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            tcp = KernelSocket()
            tcp.settimeout(SECONDS)
            bind_beside(tcp, listener.getsockname()[1], below=publishes)
            tcp.connect(listener.getsockname())
            victim = listener.accept()[0]
        victim.settimeout(SECONDS)
        return tcp, victim

    # ---- the kernel's stream

    def send(self, data: bytes) -> None:
        self.tcp.sendall(data)
        self.sent += len(data)

    def chat(self) -> None:
        """An operation of the victim in each direction, so that it takes its next step."""
        self.victim.sendall(b"v")
        assert self.tcp.recv(1) == b"v"
        self.send(b"p")
        assert self.victim.recv(1) == b"p"

    # ---- rendezvous

    def knock(self) -> socket.socket:
        """Finds the name the victim publishes and connects to it; one visitor at a time."""
        control = KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(SECONDS)
        self.victim.sendall(b"v")  # with move_after=0 the name is there after its first operation
        assert self.tcp.recv(1) == b"v"
        control.connect(self.name)
        self.control = control
        return control

    def make_region(self, size: int | None = None, seals: int = SEALS) -> int:
        """A region with a sound header, unless told otherwise; returns its memfd."""
        memfd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
        os.ftruncate(memfd, Region.size_of(self.window, self.chunk) if size is None else size)
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, seals)
        mapped = max(os.fstat(memfd).st_size, 1)
        self.region = Region(memfd, mapped, self.window, self.chunk)
        if mapped >= 4 * LINE:
            self.region.format(self.id)
        return memfd

    def say_hello(self, fds: list[int], proof: socket.socket | None = None, **lies: Any) -> None:
        """A hello, sound but for the ``lies`` about its magic, version, reuse, size and id. ``proof`` goes along as
        this end of the connection, which it is unless told otherwise."""
        assert self.control is not None
        said = {"magic": MAGIC, "version": VERSION, "reuse": 0, "size": self.region.size if self.region else 0,
                "id": self.id, **lies}  # fmt: skip
        socket.send_fds(self.control, [HELLO.pack(*said.values())], [*fds, (proof or self.tcp).fileno()])

    def answered(self) -> bool:
        """Whether the victim's connection thread took the region."""
        return self.region is not None and self.region["wakeup"] == TAKEN

    def meet(self) -> None:
        """A sound rendezvous: afterwards both have the region, and the victim has consented."""
        if self.side == 0:
            self.knock()
            memfd = self.make_region()
            self.say_hello([memfd])
            os.close(memfd)
            until(self.answered, "the victim takes the region")
        else:
            self.await_hello()
            self.region["wakeup"] = TAKEN
        until(self.victim_consents, "the victim consents")

    def await_visit(self) -> None:
        """Publishes the name until the victim has sent its hello there."""
        with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.name)
            listener.listen(1)
            listener.settimeout(0)

            def visited() -> bool:
                self.chat()
                with contextlib.suppress(BlockingIOError):
                    self.control = listener.accept()[0]
                return self.control is not None

            until(visited, "the victim finds the name")
        self.control.settimeout(SECONDS)

    def await_hello(self) -> None:
        """Publishes the name and takes the region that the victim sends there."""
        self.await_visit()
        data, fds, _, _ = socket.recv_fds(self.control, 100, 4)
        _, _, _, size, self.id = HELLO.unpack(data)
        memfd, tcp = fds
        assert os.fstat(tcp).st_ino != os.fstat(self.tcp.fileno()).st_ino
        with KernelSocket(fileno=tcp) as theirs:
            assert theirs.getsockname() == self.tcp.getpeername()
        header = os.pread(memfd, 24, 0)
        self.window, _, self.chunk = struct.unpack_from("=III", header, 12)
        self.region = Region(memfd, size, self.window, self.chunk)
        os.close(memfd)

    def victim_consents(self) -> bool:
        self.chat()
        return self.region.get(self.side, "ready") == 1

    # ---- the ring

    def move(self) -> None:
        """Our direction moves: what the victim reads after this comes from the ring."""
        self.region.set(self.side, "switch_at", self.sent + 1)

    def consent(self) -> None:
        """The victim's direction may move."""
        self.region.set(1 - self.side, "ready", 1)

    def move_both(self) -> None:
        """Both directions are on the ring afterwards: the victim has sent descriptor 0, and has taken ours."""
        self.move()
        self.consent()
        self.victim.sendall(b"s")
        self.post(b"r", ack=1)
        assert self.victim.recv(1) == b"r"
        self.region.set(1 - self.side, "acked", 1)
        self.region.set(1 - self.side, "seen", 1)

    def go_back(self, place: int = 0) -> None:
        """BACK, behind what was posted or elsewhere."""
        self.region.set(self.side, "fin", BACK | (self.posted + place))
        self.wake()

    def wake(self) -> None:
        """Wakes the victim's threads, and its loop, if it has one."""
        assert self.region is not None
        self.region.ring(self.side, "futex")
        self.region.ring(1 - self.side, "credit_futex")
        if self.region[f"set{1 - self.side}"]:
            with contextlib.suppress(ConnectionRefusedError):  # the region may say anything
                self.ask()

    def post(self, payload: bytes = b"ring", **lies: int) -> None:
        self.region.post(self.side, self.posted, payload, **lies)
        self.posted += 1
        self.wake()

    def ask(self, *fds: int, said: bytes | None = None) -> None:
        """A request to the victim's connection thread, or something else that is `said` there."""
        victim = 1 - self.side
        with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"{ASK_NAME}{self.region[f'asks{victim}']:016x}")
            socket.send_fds(sender, [self.request(victim) if said is None else said], fds)

    def request(self, side: int, version: int = VERSION, magic: int = ASK_MAGIC) -> bytes:
        """What is said to ask this side."""
        return REQUEST.pack(magic, version, side, self.id)

    def close(self) -> None:
        self.victim.close()
        self.tcp.close()
        if self.control is not None:
            self.control.close()
        if self.region is not None:
            self.region.close()


@contextlib.contextmanager
def hostile(publishes: bool = False, **geometry: int) -> Iterator[Peer]:
    """A hostile peer whose victim moves as early as possible, with the same small geometry."""
    shape = {"window": 4, "chunk": 1024, **geometry}
    settings = {"window": shape["window"], "chunk_size": shape["chunk"], "ack_threshold": 1}
    with fastsock.configure(move_after=0, **settings), contextlib.closing(Peer(publishes, **shape)) as peer:
        yield peer


@contextlib.contextmanager
def on_ring(publishes: bool) -> Iterator[Peer]:
    """A hostile peer with both directions on the ring: the victim has sent descriptor 0, and has taken ours."""
    with hostile(publishes, window=8, chunk=8192) as peer:
        peer.meet()
        peer.move_both()
        yield peer


def events(caplog: Any, name: str) -> list[str]:
    """The texts of the events called ``name`` on the logger "fastsock", without terminal colours. All that happened are
    told: a thread does it, which is waited for."""
    path_events._tell_rest()
    texts = [re.sub(r"\x1b\[[0-9;]*m", "", r.getMessage()) for r in caplog.records if r.name == "fastsock"]
    return [text for text in texts if re.search(rf"\b{re.escape(name)}\b", text)]


def violations(caplog: Any) -> list[str]:
    return [text.partition("violation=")[2].strip("'\"") for text in events(caplog, "fastsock.violation")]


def drop_parked() -> None:
    """Gives back the regions that wait for a next connection, so that what is left can be counted."""
    control.drop_parked()


def holdings() -> tuple[int, int]:
    """What this process holds without parked regions: descriptors, and bytes of regions mapped."""
    drop_parked()
    return open_descriptors(), mapped_regions()


def holdings_at_rest() -> tuple[int, int]:
    """`holdings`, for a comparison: once what a process makes once is there, nothing of earlier tests is to be
    collected any more, and the threads that close what visitors left are through with it."""
    with make_pair("ring") as (near, _):
        near.settimeout(0.1)

        def wait() -> None:
            with contextlib.suppress(TimeoutError):
                near.recv(1)

        done = threading.Event()

        def wait_on() -> None:
            while not done.is_set():
                wait()

        another = Task(wait_on).until_asleep()
        wait()  # what several threads wait for at once has a set of the process's own
        done.set()
        another.result()
    gc.collect()
    seen = [holdings()]
    while len(seen) < 4 or len(set(seen[-4:])) > 1:
        time.sleep(0.01)
        seen.append(holdings())
    return seen[-1]


def file_of(number: int) -> str:
    with contextlib.suppress(FileNotFoundError):  # it was the listing's own
        return os.readlink(f"/proc/self/fd/{number}")
    return ""


def news() -> list[int]:
    """Numbers of the descriptors that tell sleeping threads of numbers: datagram sockets that nobody can send to."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        if not file_of(number).startswith("socket:"):
            continue
        # (Another thread may close it meanwhile.)
        with contextlib.suppress(OSError), KernelSocket(fileno=os.dup(number)) as sock:
            if (sock.family, sock.type, sock.getsockname()) == (socket.AF_UNIX, socket.SOCK_DGRAM, ""):
                found.append(number)
    return found


def open_descriptors() -> int:
    """Descriptors of this process. Not its news: they are made by the first thread that sleeps beside others, and again
    after they were told."""
    return len(os.listdir("/proc/self/fd")) - len(news())


def mapped_regions(pid: int | str = "self") -> int:
    """Bytes of connection regions mapped by a process, without their spare parts."""
    total = 0
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if "memfd:fastsock" in line or "memfd:hostile" in line:
                low, high = line.split()[0].split("-")
                size = int(high, 16) - int(low, 16)
                total += size - (2 * SPARES if size > 2 * SPARES else 0)  # (an event set has a page)
    return total


def runs(process: int) -> bool:
    """Whether a process runs that is not ours to wait for. (A zombie has ended.)"""
    with contextlib.suppress(OSError):
        return state_of(process) != "Z"
    return False


NOBODY = 65534
"""Another user's id."""


def leave_connections() -> None:
    """In a forked child, which has no part in this process's connections from now on."""
    for connection in libc_front.connections():
        os.close(connection.fd)


def forked_child(function: Callable[[], None]) -> int:
    """Starts `function` in a child and returns its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            leave_connections()
            function()
        finally:
            os._exit(0)
    return pid


def as_nobody(function: Callable[[], None]) -> int:
    """Starts `function` in a child of another user and returns its process id; only root may."""

    def changed() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        function()

    return forked_child(changed)
