"""Which connections move, however their sockets came about, and why the others stay on kernel TCP."""

import contextlib
import gc
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from conformance.blocking.processes import forked
from harness.hostile_peer import holdings, holdings_at_rest, hostile
from harness.pairs import SECONDS, KernelSocket, Task, deadline, path_of, payload, read_exactly, until
from harness.processes import connect, running, settle

import fastsock
from fastsock import Path


@pytest.fixture(autouse=True)
def early() -> Iterator[None]:
    with deadline(50), fastsock.configure(move_after=0):
        yield


@contextlib.contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with fastsock.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen(8)
        listener.settimeout(SECONDS)
        yield listener


def both_ways(near: socket.socket, far: socket.socket) -> None:
    """Drives the pair until it is on the ring, and then a good deal of data each way."""

    def moved() -> bool:
        near.sendall(b"?")
        far.sendall(far.recv(1))
        assert near.recv(1) == b"?"
        return path_of(near) == path_of(far) == "ring"

    until(moved, "both ends are on the ring")
    data = payload(200_000)
    for sender, receiver in ((near, far), (far, near)):
        sending = Task(sender.sendall, data)
        assert read_exactly(receiver, len(data)) == data
        sending.result()


FOLLOWER = "settle(sock, leads=False); sock.sendall(sock.recv(5)); told()"


def follow(near: socket.socket) -> None:
    settle(near)
    near.sendall(b"hello")
    assert near.recv(5) == b"hello"


# ---- several threads ---------------------------------------------------------------------------------------


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns all the time; afterwards nothing is left behind."""
    interval, before = sys.getswitchinterval(), holdings_at_rest()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.collect()  # pytest makes a failure of a socket that is closed only here
    # (The sets of four threads that have polled at once are kept for the next ones.)
    until(lambda: holdings()[0] <= before[0] + 8, "nothing is left behind")


def use(sock: socket.socket, start: threading.Barrier, count: int) -> None:
    start.wait()
    for _ in range(count):
        sock.sendall(b"x")


def test_the_first_step_is_one_threads(hasty: None) -> None:
    """A second one would search for itself, and leave a socket or a name behind."""
    with listening() as listener:
        for _ in range(100):
            with connect(listener.getsockname()[1]) as near, listener.accept()[0] as far:
                start = threading.Barrier(4)
                tasks = [Task(use, sock, start, 3) for sock in (near, near, far, far)]
                for task in tasks:
                    task.result()
                assert read_exactly(near, 6) == read_exactly(far, 6) == b"x" * 6


def test_a_close_in_another_thread_while_steps_are_taken(hasty: None) -> None:
    with listening() as listener:
        for number in range(100):
            with connect(listener.getsockname()[1]) as near, listener.accept()[0] as far:
                start = threading.Barrier(5)
                tasks = [Task(use, sock, start, 20) for sock in (near, near, far, far)]
                start.wait()
                time.sleep(number * 1e-5)  # so that one of the closes falls into each step
                near.close()
                far.close()
                for task in tasks:
                    with contextlib.suppress(OSError):
                        task.result()


# ---- however a socket came about


def by_fromfd(sock: socket.socket) -> socket.socket:
    with sock:
        return fastsock.fromfd(sock.fileno(), sock.family, sock.type)


def by_fileno(sock: socket.socket) -> socket.socket:
    return fastsock.socket(fileno=sock.detach())


def by_dup(sock: socket.socket) -> socket.socket:
    with sock:
        return sock.dup()


WAYS = {"itself": lambda sock: sock, "fromfd": by_fromfd, "fileno": by_fileno, "dup": by_dup}


@pytest.mark.parametrize("near_way", WAYS)
@pytest.mark.parametrize("far_way", WAYS)
def test_any_way_to_a_socket(near_way, far_way):
    with listening() as listener, connect(listener.getsockname()[1]) as near:
        far, _ = listener.accept()
        near.settimeout(None)  # O_NONBLOCK would go with the descriptor
        with WAYS[near_way](near) as near, WAYS[far_way](far) as far:
            both_ways(near, far)


def test_inherited_listener():
    """As systemd passes one: a listening descriptor, and its number."""
    with KernelSocket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        source = f"listener = fastsock.socket(fileno=int(sys.argv[1])); say(0); sock, _ = listener.accept(); {FOLLOWER}"
        passed = running(source, listener.fileno(), pass_fds=[listener.fileno()])
        with passed as program, connect(listener.getsockname()[1]) as near:
            program.line()  # else a slow start is longer than a name is published
            follow(near)


ADDRESSES = {
    "IPv4": ("127.0.0.1", "127.0.0.1"),
    "IPv4, another loopback address": ("127.0.0.2", "127.0.0.2"),
    "IPv6": ("::1", "::1"),
    "wildcard": ("0.0.0.0", "127.0.0.1"),
    "wildcard, another loopback address": ("0.0.0.0", "127.3.2.1"),
    "IPv6 wildcard": ("::", "::1"),
    "mapped, dual stack": ("::", "127.0.0.1"),
    "mapped at both ends": ("::", "::ffff:127.0.0.1"),
}


@pytest.mark.parametrize("addresses", ADDRESSES)
def test_addresses(addresses):
    bound, called = ADDRESSES[addresses]
    with listening(bound) as listener:
        if bound == "::":
            assert not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        with fastsock.socket(socket.AF_INET6 if ":" in called else socket.AF_INET) as near:
            near.connect((called, listener.getsockname()[1]))
            far, _ = listener.accept()
            with far:
                both_ways(near, far)


@pytest.mark.parametrize("publishes", [True, False])
def test_moves_inside_one_big_sendall(publishes):
    """The sender makes a single call, the receiver reads."""
    source = """
    sock = connect(int(sys.argv[1]), sys.argv[2] == "True")
    received = 0
    while data := sock.recv(65536):
        received += len(data)
        if path_of(sock) != "ring":
            time.sleep(0.002)  # or the call might be over before the connection threads have run
    say(f"{received} {path_of(sock)}")
    """
    with listening() as listener, running(source, listener.getsockname()[1], publishes) as program:
        far, _ = listener.accept()
        with far:
            far.sendall(bytes(100_000_000))
            assert fastsock.path_of(far) == Path("ring", "sending")
        assert program.line() == "100000000 ring"


@pytest.mark.parametrize("publishes", [True, False])
def test_a_descriptor_exposed_while_bytes_wait_on_both_paths(publishes):
    """When those of the kernel are read, those of the ring keep it readable."""
    with listening() as listener, connect(listener.getsockname()[1], publishes) as near, listener.accept()[0] as far:
        sent = 0

        def moved() -> bool:
            nonlocal sent
            far.sendall(b"?")
            assert near.recv(1) == b"?"
            near.sendall(b"ring")
            sent += 4
            return fastsock.path_of(near) in (Path("ring", "sending"), Path("ring", "both directions"))

        until(moved, "near sends on the ring")
        near.sendall(b"ring" * 1000)
        data = b""
        while len(data) < sent + 4000:
            assert select.select([far], [], [], SECONDS)[0] == [far], f"{len(data)} of {sent + 4000} bytes"
            data += far.recv(100)
        assert data == b"ring" * (sent // 4 + 1000)


# ---- servers of many kinds, started patched


def test_names_are_answered_after_a_fork():
    """The connection thread does not survive a fork, and the parent's must go on all the same."""
    with hostile() as peer:
        peer.chat()
        with forked(lambda: None):
            pass
        peer.knock()
        memfd = peer.make_region()
        peer.say_hello([memfd])
        os.close(memfd)
        until(peer.answered, "the parent's thread takes the region")


# ---- how often the seeker looks ------------------------------------------------------------------------------


def test_a_name_published_late_is_found():
    with (
        listening() as listener,
        connect(listener.getsockname()[1], publishes=False) as near,
        fastsock.configure(move_after=300),
        listener.accept()[0] as far,
    ):
        for _ in range(140):
            far.sendall(b"!")
            assert near.recv(1) == b"!"
            assert path_of(near) == path_of(far) == "tcp"
        both_ways(near, far)


@pytest.mark.parametrize("how", ["at rest", "unread", "linger"])
def test_a_close_is_told_at_once_while_a_hello_is_on_its_way(how: str) -> None:
    """The descriptor that goes along with it keeps the kernel's connection, as long as nobody has taken it."""
    with hostile(publishes=True) as peer:
        peer.await_visit()
        if how == "unread":
            peer.send(b"unread")
            assert select.select([peer.victim], [], [], SECONDS)[0]
        elif how == "linger":
            peer.victim.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.victim.close()
        if how == "at rest":
            assert peer.tcp.recv(1) == b""
        else:
            with pytest.raises(ConnectionResetError):
                peer.tcp.recv(1)


def test_two_threads_of_a_seeker_find_one_peer(hasty):
    """One thread may look the name up while another one is with the peer that it has found."""
    for _ in range(20):
        with (
            listening() as listener,
            connect(listener.getsockname()[1], publishes=False) as near,
            fastsock.configure(move_after=60),
            listener.accept()[0] as far,
        ):

            def chat(far: socket.socket = far) -> None:
                # (Without a pause: beside a thread that waits in poll another one does not move the connection.)
                while not (far.send(b"?") and far.recv(1) and path_of(far) == "ring"):
                    pass
                far.shutdown(socket.SHUT_WR)

            def echo(near: socket.socket = near) -> None:
                while data := near.recv(1):
                    near.sendall(data)

            for task in [Task(echo), Task(echo), Task(chat)]:
                task.result()
