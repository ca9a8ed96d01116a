"""Few descriptors: a program that works without fastsock has its numbers with fastsock too, and loses no connection."""

import contextlib
import errno
import json
import os
import resource
import socket
from collections.abc import Callable, Iterator

import pytest
from conformance.blocking.processes import forked
from harness.hostile_peer import Peer, drop_parked, holdings, holdings_at_rest, hostile, violations
from harness.pairs import (
    KernelSocket,
    Pair,
    bind_beside,
    make_pair,
    path_of,
    payload,
    raises_errno,
    read_exactly,
    until,
)
from harness.processes import running

import fastsock
from fastsock._native import control

pytestmark = pytest.mark.usefixtures("bounded")

STAYS = fastsock.Path("tcp", "out of memory or descriptors")


# ---- two processes with as many connections as their limit permits -----------------------------------------

SERVER = """
    import resource
    limit, count = int(sys.argv[1]), int(sys.argv[2])
    listener = listening(backlog=count)
    listener.settimeout(SECONDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    waits, sockets = select.epoll(), {}
    say(listener.getsockname()[1])
    waits.register(listener.fileno(), select.EPOLLIN)
    accepted = 0
    while accepted < count or sockets:
        for number, _ in waits.poll(1):
            if number == listener.fileno():
                sock, _ = listener.accept()
                accepted += 1
                sockets[sock.fileno()] = sock
                waits.register(sock.fileno(), select.EPOLLIN)
                continue
            data = sockets[number].recv(100)
            if data:
                sockets[number].sendall(data)
            else:
                waits.unregister(number)
                sockets.pop(number).close()
    say("served")
"""

CLIENT = """
    import collections, json, resource
    port, limit, count, at_once = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    sockets = []
    def ask(first, count):
        for number in range(first, first + count):
            sockets[number].sendall(b"%05d" % number)
        for number in range(first, first + count):
            assert sockets[number].recv(5, socket.MSG_WAITALL) == b"%05d" % number, number
    for number in range(count):
        sock = fastsock.socket()
        sock.settimeout(SECONDS)
        sock.connect(("127.0.0.1", port))
        sockets.append(sock)
        for _ in range(3 if at_once == 1 else 0):
            ask(number, 1)
    say("connected")
    for _ in range(8):
        for number in range(0, count, at_once):
            ask(number, at_once)
        say("asked all")
    until = time.monotonic() + 80
    while any(fastsock.path_of(sock).path != "ring" for sock in sockets) and time.monotonic() < until:
        for number in range(0, count, at_once):
            ask(number, at_once)
    paths = [fastsock.path_of(sock) for sock in sockets]
    say(json.dumps(collections.Counter(path.reason for path in paths if path.path != "ring")))
    for sock in sockets:
        sock.close()
    say("asked")
"""


@pytest.mark.parametrize(("count", "at_once"), [(300, 300), (900, 1)])
def test_as_many_connections_as_on_kernel_tcp(count: int, at_once: int) -> None:
    """Nobody gets EMFILE, nothing is reset, each byte arrives; and all move, or say why not. So many ask `at_once`,
    before one hears an answer."""
    with running(SERVER, 1024, count) as server, running(CLIENT, server.line(), 1024, count, at_once) as client:
        assert [client.line() for _ in range(9)] == ["connected", *["asked all"] * 8]
        stayed = json.loads(client.line(90))
        assert set(stayed) <= {"out of memory or descriptors", "peer does not use fastsock"}
        assert sum(stayed.values()) <= count / 20
        assert client.line() == "asked"
        assert server.line() == "served"


@pytest.fixture
def limited() -> Iterator[int]:
    """A limit of 1,024, and our share's first number."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    drop_parked()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    yield 1024 - 64
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def fill_share(make: Callable[[], int]) -> list[int]:
    """Makes descriptors of ours until the share is full."""
    made = []
    with contextlib.suppress(BlockingIOError):
        while True:
            made.append(make())
    return made


SHARES = [(1024, 960, 64, 32), (2048, 1024, 128, 64), (8192, 1024, 1024, 256), (20000, 1024, 2500, 256)]
"""Limit; the share's first number, how many it has, and how many of them names and visitors leave to others."""


@pytest.mark.parametrize(("limit", "first", "size", "kept"), SHARES)
def test_our_descriptors_stay_in_our_share(limited: int, limit: int, first: int, size: int, kept: int) -> None:
    """The numbers above 1,023, if there are any: low, and none that select could use. Otherwise the last sixteenth."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < limit:
        pytest.skip(f"needs a hard limit of {limit} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken = {int(name) for name in os.listdir("/proc/self/fd")}  # (of tests before)
    low = [number for number in range(first, first + size) if number not in taken]
    high = [] if limit == 1024 else [number for number in range(limit - size, limit) if number not in taken]
    made = fill_share(lambda: control.keep_away(os.dup(1), passing=True))
    try:
        for_all = [n for n in low if n >= first + kept] + [n for n in high if n >= limit - size + kept]
        assert made == for_all[: len(made)]
        made += fill_share(control.new_eventfd)
        assert {*low} <= {*made} <= {*low, *high}
    finally:
        for fd in made:
            control.close_reserved(fd)


MOVES_ONE = """
    import resource
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    listener = listening()
    near = connect(listener.getsockname()[1])
    far = listener.accept()[0]
    with fastsock.configure(move_after=0):
        while fastsock.path_of(near).path != "ring" or fastsock.path_of(far).path != "ring":
            for one, other in (near, far), (far, near):
                one.sendall(b"x")
                other.recv(1)
    say(max(int(name) for name in os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize(("limit", "highest"), [(1024, 1023), (4096, 2047), (20000, 2047), (1048576, 2047)])
def test_a_moved_connection_leaves_the_table_of_descriptors_small(limit: int, highest: int) -> None:
    """The kernel's table grows in powers of two, each fork copies it, and some programs go through it."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < limit:
        pytest.skip(f"needs a hard limit of {limit} descriptors")
    with running(MOVES_ONE, limit) as program:
        assert int(program.line()) <= highest


@contextlib.contextmanager
def all_taken(upto: int = 1 << 20) -> Iterator[None]:
    """The program has all numbers below `upto`, or all that there are."""
    taken = [os.dup(1)]
    try:
        with contextlib.suppress(OSError):
            while taken[-1] < upto - 1:
                taken.append(os.dup(1))
        yield
    finally:
        for number in taken:
            os.close(number)


def test_a_program_near_its_limit_is_left_alone(limited: int) -> None:
    with all_taken(limited - 4), raises_errno(errno.EMFILE):
        control.new_eventfd()


def exchange(pair: Pair) -> None:
    for number in range(60):
        for sender, receiver in (pair, tuple(pair)[::-1]):
            sender.sendall(payload(300, number))
            assert read_exactly(receiver, 300) == payload(300, number)


def test_a_connection_that_finds_no_numbers_stays_on_kernel_tcp_and_the_next_one_moves(limited: int) -> None:
    with make_pair("ring"):
        pass  # what a process makes once is there
    before = holdings_at_rest()
    with make_pair("midstream") as pair, all_taken():
        exchange(pair)
        assert {fastsock.path_of(sock) for sock in pair} == {STAYS}
    with make_pair("ring"):
        pass
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


def test_a_publisher_without_address_space_asks_to_come_again() -> None:
    def child() -> None:
        with hostile(window=1024, chunk=32768) as peer:
            peer.knock()
            memfd = peer.make_region()
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
            peer.say_hello([memfd])
            assert peer.control.recv(10) == b"?"
            peer.chat()
            assert path_of(peer.victim) == "tcp"

    with forked(child):
        pass


def has_visitor(first: int) -> bool:
    """Whether the connection thread has accepted somebody at a name."""
    for number in range(first, 1024):
        try:
            sock = KernelSocket(fileno=number)
        except OSError:
            continue  # no socket
        connected = sock.type == socket.SOCK_SEQPACKET and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        sock.detach()
        if connected:
            return True
    return False


def short(peer: Peer) -> bool:
    """Whether the victim, after its next step, has decided for kernel TCP for want of descriptors."""
    peer.chat()
    return fastsock.path_of(peer.victim) == STAYS


def test_a_publisher_short_of_descriptors_says_so(limited: int, caplog: pytest.LogCaptureFixture) -> None:
    """The hello's descriptors find no numbers: kernel TCP, at both ends for the same reason, and nothing is reset."""
    with hostile() as peer:
        peer.knock()
        until(lambda: has_visitor(limited), "the visitor is accepted, and only its hello finds no numbers")
        with all_taken():
            memfd = peer.tcp.fileno()  # whatever it is: nobody gets to look at it
            peer.say_hello([memfd, memfd, memfd])
            assert peer.control is not None
            assert peer.control.recv(10) == b"!"
        until(lambda: short(peer), "the victim hears of it from its connection thread")
        assert not violations(caplog)


def test_a_seeker_is_told_that_the_publisher_is_short() -> None:
    with hostile(publishes=True) as peer:
        peer.await_hello()
        assert peer.control is not None
        peer.control.send(b"!")
        until(lambda: short(peer), "the seeker hears of it")


def test_seekers_leave_numbers_for_names(limited: int) -> None:
    """More connections look for their peer than there are numbers for meetings, and another one still moves."""
    with contextlib.ExitStack() as opened, KernelSocket() as listener, fastsock.configure(move_after=0):
        bind_beside(listener, 32768, below=True)
        listener.listen(64)
        for _ in range(40):
            near = opened.enter_context(fastsock.socket())
            bind_beside(near, 32768, below=False)  # the larger port looks for the name
            near.connect(listener.getsockname())
            far = opened.enter_context(listener.accept()[0])
            near.sendall(b"x")
            far.sendall(far.recv(1))
            assert near.recv(1) == b"x"
            assert fastsock.path_of(near) == fastsock.Path("tcp", "looking for the peer")
        with make_pair("ring") as pair:
            assert [path_of(sock) for sock in pair] == ["ring", "ring"]


@pytest.mark.parametrize("call", ["accept", "dup", "socket"])
def test_a_call_that_finds_no_number_gets_one_of_a_meetings(limited: int, call: str) -> None:
    """A connection looks for its peer, and keeps a socket for that between two operations, however long that is. The
    program takes all other numbers, and then one more."""
    with contextlib.ExitStack() as opened, KernelSocket() as listener, fastsock.configure(move_after=0):
        bind_beside(listener, 32768, below=True)
        listener.listen(1)
        near = opened.enter_context(fastsock.socket())
        bind_beside(near, 32768, below=False)  # the larger port looks for the name
        near.connect(listener.getsockname())
        far = opened.enter_context(listener.accept()[0])
        server = opened.enter_context(fastsock.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        for _ in range(8):
            opened.enter_context(KernelSocket()).connect(server.getsockname())
        calls: dict[str, Callable[[], socket.socket]] = {
            "accept": lambda: server.accept()[0], "dup": server.dup, "socket": fastsock.socket
        }  # fmt: skip
        for _ in range(3):
            far.sendall(b"x")
            assert near.recv(1) == b"x"
        with all_taken():
            while (path := fastsock.path_of(near)) == fastsock.Path("tcp", "looking for the peer"):
                opened.enter_context(calls[call]())  # (a thread may have given back a number of an earlier test)
        assert path == STAYS
