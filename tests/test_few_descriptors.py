"""Few descriptors: a program that works without fastsock has its numbers with fastsock too, and loses no connection."""

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Callable, Iterator

import pytest
from differential.processes import forked
from hostile import Peer, drop_parked, holdings, holdings_at_rest, hostile, violations
from pairs import (
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

import fastsock
from fastsock._native import connector

pytestmark = pytest.mark.usefixtures("bounded")

STAYS = fastsock.Path("tcp", "out of memory or descriptors")


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


def test_our_descriptors_stay_in_our_share(limited: int) -> None:
    """The last sixteenth; and the eventfds of those that meet find room where names and visitors leave it."""
    made = fill_share(lambda: connector.keep_away(os.dup(1), passing=True))
    assert made == list(range(limited + 32, 1024))
    made += fill_share(connector.new_eventfd)
    assert sorted(made) == list(range(limited, 1024))
    for fd in made:
        os.close(fd)


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
        connector.new_eventfd()


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
