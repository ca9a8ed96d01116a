"""Connected socket pairs of every kind, and what tests on them need: errors, deadlines, threads.

A test body written against a pair runs unchanged on kernel TCP and on the ring. ``KINDS`` is the table of
pairs; ``near`` is the end a test examines, ``far`` its peer. fastsock is imported only where a kind needs
it, so that the kernel kind says what TCP does whether or not fastsock is there.
"""

import contextlib
import errno
import fcntl
import importlib
import os
import platform
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

STREAMS = os.environ.get("TEST_STREAMS")
"""Pairs of no family in particular are stream sockets of AF_UNIX ("unix"), or socketpairs which a fork has shared
("pair"): the same bodies find out what differs there."""

ON_UNIX_STREAMS = STREAMS is not None
of_tcp_alone = pytest.mark.skipif(ON_UNIX_STREAMS, reason="an address or an option that a unix stream has not")

PATIENCE = 3
SECONDS = 20 if STREAMS is None else 3  # (some bodies wait in vain there for what TCP alone does)
"""How long one wait may take before its test fails."""

KernelSocket = socket.socket
"""The stdlib's class, taken before any test patches the module."""


def bind_beside(sock: socket.socket, port: int, below: bool, host: str = "127.0.0.1") -> None:
    """Binds to a free port below or above ``port``, which decides who publishes. Chosen from the whole range: the
    kernel's own choice may have no free port left on that side, because of connections in TIME_WAIT."""
    while True:
        try:
            sock.bind((host, random.randrange(1024, port) if below else random.randrange(port + 1, 65536)))
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


# The kinds


@dataclass(frozen=True)
class Kind:
    """How the two ends of a pair are made: which are fastsock sockets, under which settings."""

    near_fastsock: bool = False
    far_fastsock: bool = False
    settings: dict[str, int] = field(default_factory=dict)
    moved: bool = False
    """Whether the connection is on the ring before the body starts."""
    moves: bool = False
    """Whether enough traffic in both directions brings the connection to the ring."""


KINDS = {
    "kernel": Kind(),
    "ring": Kind(True, True, {"move_after": 0}, moved=True, moves=True),
    "ring-nopoll": Kind(True, True, {"move_after": 0, "poll_us": 0}, moved=True, moves=True),
    "midstream": Kind(True, True, {"move_after": 2}, moves=True),
    "one-sided": Kind(True, False, {"move_after": 0}),
}

FAMILIES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def socket_class(of_fastsock: bool) -> type[socket.socket]:
    """fastsock's class or the stdlib's."""
    return importlib.import_module("fastsock").socket if of_fastsock else KernelSocket


def listening(of_fastsock: bool = True, backlog: int = 8) -> socket.socket:
    """A socket of fastsock's or of the stdlib's that listens at a free port."""
    sock = socket_class(of_fastsock)()
    sock.bind(("127.0.0.1", 0))
    sock.listen(backlog)
    return sock


def configured(kind: str) -> contextlib.AbstractContextManager[Any]:
    """The settings of a kind, restored on leaving; nothing at all for the kernel's own pair."""
    settings = KINDS[kind].settings
    return importlib.import_module("fastsock").configure(**settings) if settings else contextlib.nullcontext()


def path_of(sock: socket.socket) -> str:
    """``"ring"`` or ``"tcp"``."""
    if "fastsock" not in sys.modules:
        return "tcp"
    return importlib.import_module("fastsock").path_of(sock).path


def standing(sock: socket.socket) -> Any:
    """How its connection stands (`libc_front.standing`); None if fastsock does not serve it."""
    return importlib.import_module("fastsock._native.libc_front").standing(sock.fileno())


def described(sock: socket.socket, what: str) -> Any:
    """A part of its connection's state (`libc_front.describe`); None where there is none."""
    state = importlib.import_module("fastsock._native.libc_front").describe(sock.fileno())
    return state.get(what) if state else None


def inside(sock: socket.socket) -> dict[str, Any]:
    """The state of a connection that fastsock serves (libc_front.describe)."""
    state: dict[str, Any] | None = importlib.import_module("fastsock._native.libc_front").describe(sock.fileno())
    assert state is not None
    return state


@dataclass
class Pair:
    """Two connected sockets: ``near`` connected, ``far`` was accepted."""

    near: socket.socket
    far: socket.socket
    kind: str

    def __iter__(self) -> Iterator[socket.socket]:
        return iter((self.near, self.far))

    def check_path(self) -> None:
        """After the body's traffic, and some more where the ends need it to meet: on the ring where the kind moves,
        else on kernel TCP."""
        expected = "ring" if KINDS[self.kind].moves else "tcp"
        if expected == "ring":
            move(self.near, self.far)
        assert [path_of(sock) for sock in self] == [expected, expected]


def let_a_fork_share() -> None:
    """Forks a child that ends at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # (3.12 warns of threads)
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@contextlib.contextmanager
def make_shared_pair(kind: str) -> Iterator[Pair]:
    """A socketpair, as a program has it that has forked since."""
    on = KINDS[kind].moves
    with configured(kind), contextlib.ExitStack() as stack:
        if on:
            fastsock = importlib.import_module("fastsock")
            fastsock.patch(**KINDS[kind].settings)
            stack.callback(fastsock.unpatch)
        near, far = (stack.enter_context(end) for end in socket.socketpair())
        let_a_fork_share()
        if KINDS[kind].moved:
            move(near, far)
        yield Pair(near, far, kind)


@contextlib.contextmanager
def make_pair(
    kind: str, family: int | None = None, before_connect: Callable[[socket.socket], object] | None = None
) -> Iterator[Pair]:
    """A connected pair of ``kind`` on loopback, closed on leaving. Both ends are in blocking mode."""
    if family is None and STREAMS == "pair" and before_connect is None:
        with make_shared_pair(kind) as pair:
            yield pair
        return
    if family is None:
        family = socket.AF_UNIX if ON_UNIX_STREAMS else socket.AF_INET
    with configured(kind):
        far_class, near_class = socket_class(KINDS[kind].far_fastsock), socket_class(KINDS[kind].near_fastsock)
        with far_class(family) as listener, near_class(family) as near:
            listener.bind("" if family == socket.AF_UNIX else (FAMILIES[family], 0))  # (a name that the kernel chooses)
            listener.listen(1)
            if before_connect is not None:
                before_connect(near)
            address = listener.getsockname()
            near.connect(address if family == socket.AF_UNIX else address[:2])
            far = listener.accept()[0]
            listener.close()
            with far:
                if KINDS[kind].moved:
                    move(near, far)
                yield Pair(near, far, kind)
                if kind == "one-sided" and near.fileno() != -1:
                    assert path_of(near) == "tcp"


def move(near: socket.socket, far: socket.socket) -> None:
    """Drives bytes both ways until both ends are on the ring; fails after ``SECONDS``."""
    limit = time.monotonic() + SECONDS
    while not path_of(near) == path_of(far) == "ring":
        assert time.monotonic() < limit, f"still on {path_of(near)} and {path_of(far)} after {SECONDS} s"
        for sender, receiver in ((near, far), (far, near)):
            sender.sendall(b"move")
            assert read_exactly(receiver, 4) == b"move"


# Bytes


def payload(size: int, seed: int = 0) -> bytes:
    """``size`` bytes that look random and are the same on every call."""
    return random.Random(seed).randbytes(size)


def read_exactly(sock: socket.socket, size: int, at_most: int = 1 << 20) -> bytes:
    """``size`` bytes, or fewer where the stream ends; ``at_most`` in one ``recv``."""
    received = bytearray()
    while len(received) < size and (chunk := sock.recv(min(at_most, size - len(received)))):
        received += chunk
    return bytes(received)


def read_to_eof(sock: socket.socket) -> bytes:
    """All bytes up to the end of the stream."""
    received = bytearray()
    while chunk := sock.recv(1 << 16):
        received += chunk
    return bytes(received)


def pattern(size: int) -> bytes:
    """The first ``size`` bytes of the stream that ``fill`` sends."""
    period = payload(1 << 16)
    return (period * (size // len(period) + 1))[:size]


def fill(sock: socket.socket) -> int:
    """Sends without waiting until the connection takes no more; returns how much of ``pattern`` it took.

    Full means that it refuses twice and does not call itself writable for a while: the kernel moves bytes on
    after its first EAGAIN, grows its buffers while it does, and takes a few more before it calls itself writable.
    """
    stream = pattern(1 << 17)
    sent = refused = 0
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        try:
            sent += sock.send(memoryview(stream)[sent % (1 << 16) :][: 1 << 16], socket.MSG_DONTWAIT)
            refused = 0
        except BlockingIOError:
            began = time.monotonic()
            writable = select.select([], [sock], [], 0.05)[1]
            stood_still = time.monotonic() - began > 0.2  # then the kernel has not had that time either
            refused = 0 if writable else refused + (not stood_still)
            if refused == 2:
                return sent
    raise AssertionError(f"takes more after {sent} bytes and {SECONDS} s")


def reset(sock: socket.socket) -> None:
    """Closes so that the peer gets RST: SO_LINGER on, 0 seconds (socket(7))."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def leave(sock: socket.socket) -> None:
    """Takes a connection back to kernel TCP, where time stamps are (SO_TIMESTAMP)."""
    sock.setsockopt(socket.SOL_SOCKET, 29, 0)


# Readiness

EVENTS = {
    name: getattr(select, f"POLL{name}") for name in ("IN", "PRI", "OUT", "ERR", "HUP", "RDHUP")
}  # epoll's flags have the same values (linux/eventpoll.h)


def poll_mask(sock: socket.socket, events: int = sum(EVENTS.values())) -> int:
    """What ``poll`` reports at this moment."""
    poll = select.poll()
    poll.register(sock, events)
    return sum(mask for _, mask in poll.poll(0))


def names_of(mask: int) -> str:
    """A mask in words, for assertions that explain themselves."""
    return "|".join(name for name, bit in EVENTS.items() if mask & bit) or "none"


# Errors


@contextlib.contextmanager
def raises_errno(code: int) -> Iterator[None]:
    """The block raises what CPython raises for this errno: its exception type, number and text."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
        yield
    expected = OSError(code, os.strerror(code))
    assert (type(caught.value), caught.value.args) == (type(expected), expected.args), errno.errorcode[code]


def error_of(call: Callable[[socket.socket], object], sock: socket.socket) -> tuple[type, tuple[object, ...]]:
    """Type and arguments of the exception that ``call(sock)`` raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared with another socket's by the caller
        call(sock)
    return caught.type, caught.value.args


# Waiting


class Overdue(AssertionError):
    """A test's time is up."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises ``Overdue`` in the main thread when the block takes longer, also out of a system call. The seconds are
    those of an idle machine; ``PATIENCE`` times as many may pass."""
    seconds *= PATIENCE

    def expire(*_: object) -> None:
        raise Overdue(f"not done within {seconds} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def taken_back(sock: socket.socket, timeout: float | None = None) -> socket.socket:
    """Its descriptor, whose connection goes back to the kernel for good: only the kernel can send SIGIO, which it is
    asked for."""
    raw = KernelSocket(fileno=sock.detach())
    flags = fcntl.fcntl(raw, fcntl.F_GETFL)
    fcntl.fcntl(raw, fcntl.F_SETFL, flags | os.O_ASYNC)
    fcntl.fcntl(raw, fcntl.F_SETFL, flags)
    raw.settimeout(timeout)
    return raw


def socket_at(number: int, make: Callable[[], socket.socket], stack: contextlib.ExitStack) -> socket.socket:
    """A new socket that has this number, which was closed. (A thread of ours may have it for a moment.)"""
    for _ in range(100):
        sock = stack.enter_context(make())
        if sock.fileno() == number:
            return sock
        time.sleep(0.01)
    raise AssertionError(f"somebody has taken the number {number}")


def until(predicate: Callable[[], Any], what: str) -> Any:
    """Waits until ``predicate()`` is true and returns its value; fails after ``SECONDS``."""
    limit = time.monotonic() + SECONDS
    while not (value := predicate()):
        assert time.monotonic() < limit, f"{what}: not within {SECONDS} s"
        time.sleep(0.001)
    return value


def eventually(look: Callable[[], Any], expected: Any) -> None:
    """Waits until ``look()`` returns ``expected``; fails after ``SECONDS``, showing the last look."""
    limit = time.monotonic() + SECONDS
    while (seen := look()) != expected and time.monotonic() < limit:
        time.sleep(0.001)
    assert seen == expected


def state_of(process: int, thread: int | None = None) -> str:
    """How a thread stands (the first one, unless told) with the scheduler: R, S, T, Z and so on (proc(5))."""
    return Path(f"/proc/{process}/task/{thread or process}/stat").read_text().rpartition(")")[2].split()[0]


def until_asleep(process: int, thread: int | None = None) -> None:
    """Waits until a thread (the first one, unless told) sleeps in the kernel.

    Nothing announces that a call blocks, so this looks at the scheduler's state. Waiting for the GIL looks
    alike, hence several looks in a row, between which a thread that waits only for that would go on.
    """

    def asleep() -> bool:
        for _ in range(5):
            if state_of(process, thread) != "S":
                return False
            time.sleep(0.002)
        return True

    until(asleep, "the thread is asleep")


FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine(), "none")
"""Number of the system call in which a thread sleeps on a word."""
FUTEX_PRIVATE = 128
"""In its second argument, of a thread that waits for the GIL: it is not blocked in a call of its own, which sleeps on a
word that other processes have too."""


def sleep_of(thread: int) -> tuple[str, ...] | None:
    """What a thread of this process sleeps in, and its sleeps so far: two equal answers mean that it did not wake in
    between. None if it runs, or waits for the GIL."""
    task = Path(f"/proc/self/task/{thread}")
    try:
        call = (task / "syscall").read_text()
    except PermissionError:  # not in every kernel
        call = (task / "stat").read_text().rpartition(")")[2].split()[0].replace("R", "running")
    if call.startswith("running") or (call.split()[0] == FUTEX and int(call.split()[2], 16) & FUTEX_PRIVATE):
        return None
    return call, *(line for line in (task / "status").read_text().splitlines() if line.startswith("voluntary"))


class Task(threading.Thread):
    """A function in a thread of its own; ``result()`` returns its value or raises its exception."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self._call = lambda: function(*args)
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    def until_asleep(self) -> "Task":
        """Waits until the thread is blocked in the kernel; returns itself."""
        until_asleep(os.getpid(), self.native_id)
        return self

    def blocks(self) -> bool:
        """Waits until the thread is blocked in the kernel, or its call is over: whether it is blocked."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            self.until_asleep()
        return self.is_alive()

    def result(self) -> Any:
        self.join(SECONDS)
        assert not self.is_alive(), f"the thread is still running after {SECONDS} s"
        if self._error is not None:
            raise self._error
        return self._value


def when_main_sleeps(function: Callable[..., Any], *args: Any) -> Task:
    """Calls ``function`` in another thread once the main thread is blocked in the kernel."""

    def wait_and_call() -> Any:
        until_asleep(os.getpid(), threading.main_thread().native_id)
        return function(*args)

    return Task(wait_and_call)
