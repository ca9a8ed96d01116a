"""Forks while other threads use, open and close connections: the child finds all whole, and the parent goes on."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness.pairs import deadline


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(100):
        yield


IN_THE_WINDOW = """
import os, signal, socket, sys, threading, time
windows = []
# Registered before fastsock is there: it runs after fastsock's own preparations, right before the fork.
os.register_at_fork(before=lambda: [window() for window in windows])
import fastsock
from fastsock._native import libc_front
from harness.pairs import *

def in_child(function):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(30)
            function()
            status = 0
        finally:
            os._exit(status)
    return pid

def holders():
    return [libc_front.describe(end.fd)["holders"] for end in libc_front.connections()]

def ended_well(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def meet():
    with make_pair("ring") as pair:
        pair.near.sendall(b"met")
        assert read_exactly(pair.far, 3) == b"met"
"""


def run(source: str, first: str = "") -> None:
    """Runs a program to its end; what it prints is shown if it fails. `first`: before fastsock is there."""
    path = [__file__.rpartition("/")[0], *sys.path]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{first}\n" + IN_THE_WINDOW + source],
                   timeout=60, check=True)  # fmt: skip


def test_a_fork_without_connections_runs_no_python_of_ours() -> None:
    """In parent or child: each page that is written behind a fork is copied first."""
    run("""
import fastsock
fastsock.patch()
package, called = os.path.dirname(fastsock.__file__), []
def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(package):
        called.append(frame.f_code.co_name)
sys.setprofile(note)
pid = os.fork()
if not pid:
    os._exit(len(called))
sys.setprofile(None)
ended_well(pid)
assert not called, called
""")


def test_an_operation_before_the_fork_does_not_start_the_thread() -> None:
    """The child would believe that its connection thread runs, and nobody would answer there."""
    run("""
stop = threading.Event()
with make_pair("ring") as pair:
    def use():
        while not stop.is_set():
            pair.near.sendall(b"x")
            assert pair.far.recv(1) == b"x"
    using = threading.Thread(target=use)
    using.start()
    windows.append(lambda: time.sleep(0.2))
    for _ in range(3):
        ended_well(in_child(meet))
    stop.set()
    using.join()
    meet()
""")


def test_connections_opened_and_closed_before_the_fork_are_counted_as_they_are() -> None:
    """A child that was not counted lets its parent say goodbye for both; one counted in vain keeps it from that."""
    run(
        """
with make_pair("ring") as old, contextlib.ExitStack() as opened:
    new = []
    def window():
        old.near.close()
        new.append(opened.enter_context(make_pair("midstream")))
    windows.append(window)
    def look():
        assert holders() == [2, 2, 2]
    ended_well(in_child(look))
    windows.clear()
    assert old.far.recv(1) == b""
    assert holders() == [1, 1, 1]
""".replace("with make_pair", "import contextlib\nwith make_pair", 1)
    )


FAILING = """
import contextlib, resource, subprocess

@contextlib.contextmanager
def no_processes():
    # (The limit does not hold for the superuser.)
    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NPROC, limits)

def fail(fork):
    try:
        fork()
    except OSError:  # (older Pythons ask for errno behind the hooks, which may have changed it)
        return
    raise SystemExit("forked")
"""
FORKS = {
    "patched": "fastsock.patch(); fork = os.fork",
    "unpatched": "fork = os.fork",
    "forkpty": "fastsock.patch(); fork = os.forkpty",
    "preexec": "fork = lambda: subprocess.run(['true'], preexec_fn=lambda: None)",
}


@pytest.mark.parametrize("fork", FORKS)
def test_a_fork_that_fails_leaves_no_holder(fork: str) -> None:
    """The connection would never be said goodbye to."""
    run(
        FAILING
        + FORKS[fork]
        + """
with make_pair("ring") as pair:
    with no_processes():
        for _ in range(3):
            fail(fork)
    assert holders() == [1, 1]
    ended_well(in_child(lambda: None))
    assert holders() == [1, 1]
    pair.near.sendall(b"on")
    assert read_exactly(pair.far, 2) == b"on"
meet()
"""
    )


@pytest.mark.parametrize("fork", ["patched", "forkpty", "preexec"])
def test_the_connection_thread_runs_again_behind_a_fork(fork: str) -> None:
    """Also where no call and no loop starts it: peers ask it."""
    run(
        "import subprocess\nfastsock.patch()\n"
        + FORKS[fork]
        + """
threads = lambda: len(os.listdir("/proc/self/task"))
with make_pair("ring"):
    before = threads()
    child = fork()
    if child == 0 or isinstance(child, tuple) and child[0] == 0:
        os._exit(0)
    assert threads() == before > 1
"""
    )


@pytest.mark.parametrize("fork", FORKS)
def test_a_connection_that_is_closed_while_a_fork_fails_says_goodbye(fork: str) -> None:
    """Its process is the last that holds it, though the fork's caller has not heard yet that there is no child."""
    run(
        FAILING
        + FORKS[fork]
        + """
with make_pair("ring") as pair:
    go, closed = threading.Event(), threading.Event()
    def close():
        go.wait()
        pair.near.close()
        closed.set()
    threading.Thread(target=close).start()
    os.register_at_fork(after_in_parent=lambda: (go.set(), closed.wait(30)))
    with no_processes():
        fail(fork)
    assert closed.is_set()
    assert libc_front.describe(pair.far.fileno())["fin"] != 0
    assert pair.far.recv(1) == b""
"""
    )


def test_a_child_counts_although_an_error_is_left_behind_in_the_fork() -> None:
    """By another library's preparations, after ours. It says nothing of the fork."""
    run(
        """
with make_pair("ring") as pair:
    def use():
        pair.near.sendall(b"from the child")
    for _ in range(3):
        ended_well(in_child(lambda: None))
    os.register_at_fork(after_in_parent=pair.near.close)
    pid = in_child(use)
    assert read_exactly(pair.far, 14) == b"from the child"
    ended_well(pid)
    assert pair.far.recv(1) == b""
""",
        first="from native.ring import library; assert library().leave_errors_in_forks() == 0",
    )


def test_a_thread_that_cannot_start_after_a_fork_starts_later() -> None:
    """Nobody would answer what the peer asks for: doorbell bytes, the way out."""
    run("""
import resource
fastsock.patch()
def threads():
    return len(os.listdir("/proc/self/task"))
with make_pair("ring") as pair:
    assert threads() == 2
    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, limits[1]))
    try:
        os.fork()
    except BlockingIOError:
        pass
    pair.near.sendall(b"x")
    assert pair.far.recv(1) == b"x"
    deadline = time.monotonic() + 20
    while threads() > 1 and time.monotonic() < deadline:  # who was joined is listed until the kernel is done with it
        time.sleep(0.001)
    assert threads() == 1
    resource.setrlimit(resource.RLIMIT_NPROC, limits)
    deadline = time.monotonic() + 20
    while threads() == 1 and time.monotonic() < deadline:
        pair.near.sendall(b"x")
        assert pair.far.recv(1) == b"x"
    assert threads() == 2
""")


def test_two_threads_that_fork_at_once() -> None:
    """One of them ends the connection thread, and the other one waits for that."""
    run("""
def fork_often():
    for _ in range(25):
        ended_well(in_child(lambda: None))
with make_pair("ring") as pair:
    forkers = [threading.Thread(target=fork_often) for _ in range(3)]
    for thread in forkers:
        thread.start()
    while any(thread.is_alive() for thread in forkers):
        pair.near.sendall(b"x")
        assert pair.far.recv(1) == b"x"
    assert holders() == [1, 1]
ended_well(in_child(meet))
meet()
""")


def test_a_storm_of_forks_while_threads_use_sockets() -> None:
    """Some exchange bytes, some open connections until they move and close them."""
    run("""
stop, failed = threading.Event(), []
def until_stopped(function):
    def loop():
        try:
            while not stop.is_set():
                function()
        except BaseException as error:
            failed.append(error)
            raise
    return threading.Thread(target=loop)
with make_pair("ring") as pair, fastsock.configure(move_after=0):
    def exchange():
        pair.near.sendall(b"x" * 1000)
        assert read_exactly(pair.far, 1000) == b"x" * 1000
    # Connections that open while there are forks may be shared with a child for a while, and move later.
    def come_and_go():
        with make_pair("midstream") as other:
            for _ in range(10):
                other.near.sendall(b"y")
                assert other.far.recv(1) == b"y"
    threads = [until_stopped(exchange), until_stopped(come_and_go), until_stopped(come_and_go)]
    for thread in threads:
        thread.start()
    for number in range(60):
        ended_well(in_child(meet if number % 4 == 0 else lambda: None))
        assert not failed
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    exchange()
    assert holders() == [1, 1]
meet()
""")
