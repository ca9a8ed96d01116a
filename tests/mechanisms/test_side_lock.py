"""The locks of a side: holders that are killed or stopped while they hold one, and bridges that come between."""

import contextlib
import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from conformance.blocking.processes import Gate, forked, spawn
from conformance.blocking.test_signals import handler
from harness.pairs import SECONDS, Pair, Task, make_pair, payload, raises_errno, read_exactly, state_of, until
from native.ring import library

from fastsock._native import registry, socket_lifecycle

RECEIVING, SENDING = 0, 1


BOTH = pytest.mark.parametrize("lock", [RECEIVING, SENDING], ids=["receiving", "sending"])


pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def kind() -> str:
    """Of `pair`."""
    return "ring"


@dataclass
class Side:
    """The locks of one end's side, taken as the endpoint takes them."""

    address: int

    def take(self, lock: int) -> None:
        until(lambda: library().lock_try(self.address, lock), "the lock")

    def end(self, lock: int) -> None:
        library().lock_release(self.address, lock)

    def free(self, lock: int) -> bool:
        return int(library().lock_word(self.address, lock)) == 0


def side_of(sock: socket.socket) -> Side:
    library()
    endpoint = registry.find(sock.fileno())
    assert endpoint is not None
    return Side(endpoint.describe()["side"])


def exchange(pair: Pair) -> None:
    for sender, receiver in (tuple(pair), tuple(pair)[::-1]):
        for number in range(20):
            sender.sendall(payload(500, number))
            assert read_exactly(receiver, 500) == payload(500, number)


@BOTH
@pytest.mark.parametrize("end", ["thread", "exec"])
def test_a_holder_that_has_ended_has_no_lock(pair: Pair, lock: int, end: str) -> None:
    """A thread's process lives, and so does its number's. (How processes are killed: native/crashes.c.)"""
    side = side_of(pair.near)

    def execs() -> None:
        side.take(lock)
        os.execv("/bin/sleep", ["sleep", str(SECONDS)])

    if end == "thread":
        Task(side.take, lock).join()
        exchange(pair)
        return
    with forked(execs) as pid:
        until(lambda: os.readlink(f"/proc/{pid}/exe") != os.readlink("/proc/self/exe"), "exec")
        exchange(pair)
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def stopped_with(side: Side, lock: int) -> Iterator[int]:
    """A forked holder that has the lock and is stopped until the block ends."""

    def child() -> None:
        side.take(lock)
        os.kill(os.getpid(), signal.SIGSTOP)
        side.end(lock)

    with forked(child) as pid:
        until(lambda: state_of(pid) == "T", "the stop")
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGCONT)


@BOTH
def test_a_stopped_holder_keeps_its_lock_and_nobody_spins_for_it(pair: Pair, lock: int) -> None:
    """The caller waits without the interpreter's lock, keeps its timeout and hears of signals."""
    near, far = pair
    side = side_of(near)
    far.sendall(b"x")
    heard = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))

    def call() -> None:
        if lock == SENDING:
            near.sendall(b"y")
        else:
            assert near.recv(1) == b"x"

    with stopped_with(side, lock):
        near.settimeout(2)  # so long that the signal comes before, also where the machine stands still for a second
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        before = time.process_time()
        with pytest.raises(TimeoutError):
            call()
        assert heard
        assert time.process_time() - before < 1
        timer.join()
        near.setblocking(False)
        with pytest.raises(BlockingIOError):
            call()
        near.setblocking(True)
        task = Task(call)
        assert task.blocks()
    task.result()
    if lock == SENDING:
        assert far.recv(1) == b"y"


def test_a_request_waits_for_a_stopped_holder_alone(pair: Pair) -> None:
    """The connection thread answers others meanwhile, and this one when the holder goes on."""

    def becomes_readable(sock: socket.socket) -> bool:
        poll = select.poll()
        poll.register(sock, select.POLLIN)  # its number is handed out, and the other end is asked for a doorbell byte
        return poll.poll(SECONDS * 1000) != []

    with make_pair("ring") as other:
        for near in (pair.near, other.near):
            near.sendall(b"x")
        with stopped_with(side_of(pair.near), SENDING):
            first = Task(lambda: becomes_readable(pair.far))
            assert first.blocks()
            assert becomes_readable(other.far)
            assert first.blocks()
        assert first.result()


class Interrupted(Exception):
    """Raised by a signal handler."""


@contextlib.contextmanager
def interrupted(act: Callable[[], object], signals: int) -> Iterator[None]:
    """So many signals are handled, and the last handler acts."""
    handled = []

    def handle() -> None:
        handled.append(0)
        if len(handled) == signals:
            act()

    def interrupt() -> None:
        while len(handled) < signals:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)

    with handler(handle):
        interrupting = Task(interrupt)
        yield
        interrupting.result()


def give_up() -> None:
    raise Interrupted


CALLS = {
    "shutdown": (SENDING, lambda near: near.shutdown(socket.SHUT_WR)),
    "limit of sends": (SENDING, lambda near: near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)),
    "limit of receives": (RECEIVING, lambda near: near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)),
    "urgent bytes in line": (RECEIVING, lambda near: near.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)),
    "fileno": (RECEIVING, lambda near: near.fileno()),
    "detach": (SENDING, lambda near: near.detach()),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_hears_of_signals_while_a_stopped_holder_has_the_lock(pair: Pair, call: str) -> None:
    """A handler may end it, and nothing is done then. Else it goes on when the holder does."""
    near, far = pair
    lock, make = CALLS[call]
    endpoint = socket_lifecycle.endpoint_now(near)  # (`fileno()` would hand the number out)
    assert endpoint is not None
    library()
    side = Side(endpoint.describe()["side"])
    with stopped_with(side, lock):
        with interrupted(give_up, 2), pytest.raises(Interrupted):
            make(near)
        assert not side.free(lock)
        going_on = Task(lambda: make(near))
        assert going_on.blocks()
    number = going_on.result()
    if call == "detach":
        near = socket.socket(fileno=number)
    with near:
        if call != "shutdown":
            near.sendall(b"x")
        assert far.recv(1) == (b"" if call == "shutdown" else b"x")
        far.sendall(b"y")
        assert read_exactly(near, 1) == b"y"


@BOTH
def test_closing_one_of_several_descriptors_waits_for_no_stopped_holder(pair: Pair, lock: int) -> None:
    """The others go on, and the number is free for another file at once."""
    near, far = pair
    side = side_of(near)
    number = near.fileno()
    with near.dup() as other:
        with stopped_with(side, lock):
            closing = Task(near.close)
            until(lambda: not closing.is_alive(), "the close")
            closing.result()
            with open(os.devnull, "rb") as taken:
                assert taken.fileno() == number
                assert not side.free(lock)
        exchange(Pair(other, far, "ring"))


@pytest.mark.parametrize(
    ("handle", "number"),
    [(lambda near: near.setblocking(False), errno.EAGAIN), (lambda near: near.close(), errno.EBADF)],
    ids=["non-blocking", "closed"],
)
@BOTH
def test_a_handler_ends_a_call_while_a_stopped_holder_has_the_lock(
    pair: Pair, lock: int, handle: Callable[[socket.socket], None], number: int
) -> None:
    """As on TCP, where the call is made again behind the signal."""
    near = pair.near
    with stopped_with(side_of(near), lock), interrupted(lambda: handle(near), 1), raises_errno(number):
        near.sendall(b"x") if lock == SENDING else near.recv(1)


def echo(sock: socket.socket) -> None:
    while chunk := sock.recv(65536):
        sock.sendall(chunk)


def test_a_fork_waits_for_a_connection_that_is_just_moving() -> None:
    """The child knows which way the bytes go: its own arrive, and it reads no doorbell bytes as data."""
    inside = threading.Event()

    class Slow:
        """In place of a loop's queue, which is told before the endpoint attaches."""

        @staticmethod
        def admit(endpoint: object) -> None:
            inside.set()
            time.sleep(0.3)

        dismiss = staticmethod(bool)

    with spawn("midstream", echo) as (near, _), Gate() as moved:
        near._endpoint.queue = Slow

        def drive() -> None:
            for number in range(60):
                near.sendall(payload(100, number))
                assert read_exactly(near, 100) == payload(100, number)

        def drive_and_move() -> None:
            while not inside.is_set():  # where processors are scarce, the ends need longer to meet
                drive()
            drive()

        def child() -> None:
            moved.wait()
            drive()

        driver = Task(drive_and_move)
        assert inside.wait(SECONDS)
        with forked(child):
            driver.result()
            moved.open()
        drive()


def test_a_child_that_was_killed_and_not_reaped_holds_nothing() -> None:
    """A connection that only the dead one shared moves."""
    with make_pair("midstream") as pair, forked(lambda: os.kill(os.getpid(), signal.SIGKILL)) as pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        for _ in range(10):
            exchange(pair)
        pair.check_path()
