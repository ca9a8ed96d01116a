"""The locks of a side: holders that are killed or stopped while they hold one, and bridges that come between."""

import contextlib
import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from conformance.blocking.processes import forked
from conformance.blocking.test_signals import handler
from harness.pairs import SECONDS, Pair, Task, inside, make_pair, payload, raises_errno, read_exactly, state_of, until
from native.ring import library

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
    return Side(inside(sock)["side"])


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


def test_a_shutdown_waits_for_a_stopped_holder(pair: Pair) -> None:
    near, far = pair
    side = side_of(near)
    with stopped_with(side, SENDING):
        calling = Task(near.shutdown, socket.SHUT_WR)
        assert calling.blocks()
        assert not side.free(SENDING)
    calling.result()
    assert far.recv(1) == b""
    far.sendall(b"y")
    assert read_exactly(near, 1) == b"y"


@pytest.mark.parametrize("option", [socket.SO_SNDBUF, socket.SO_RCVBUF], ids=["limit of sends", "limit of receives"])
@BOTH
def test_an_option_waits_for_no_stopped_holder(pair: Pair, lock: int, option: int) -> None:
    """On TCP it never sleeps, and Python sets it with the interpreter's lock."""
    near = pair.near
    with stopped_with(side_of(near), lock):
        near.setsockopt(socket.SOL_SOCKET, option, 1 << 16)
        assert near.getsockopt(socket.SOL_SOCKET, option) == 1 << 17
    exchange(pair)


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


def test_a_child_that_was_killed_and_not_reaped_holds_nothing() -> None:
    """A connection that only the dead one shared moves."""
    with make_pair("midstream") as pair, forked(lambda: os.kill(os.getpid(), signal.SIGKILL)) as pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        for _ in range(10):
            exchange(pair)
        pair.check_path()
