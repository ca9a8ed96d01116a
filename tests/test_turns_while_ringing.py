"""No turn is held while its holder waits: for room in the kernel for a doorbell byte, or for the end of a post. What is
owed meanwhile is sent, whoever is killed or stopped.

What shows it is what can be done in the turn while the other one waits. (Who holds the turn while he waits has given
up when it can be had.)
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from differential.processes import forked
from hostile import EXPOSED, Peer, on_ring
from native.ring import library
from pairs import KernelSocket, Task, poll_mask, read_exactly, until
from test_turns_while_waiting import RECEIVING, SENDING, nothing_to_receive, side_of, take_turn

pytestmark = pytest.mark.usefixtures("bounded")

ATTEMPTS = 20
"""To be within some milliseconds of something, on a loaded machine too. Each with a connection of its own."""

Calls = dict[str, tuple[int, Callable[[Peer], object]]]
CALLS: Calls = {
    "send": (1, lambda peer: peer.victim.send(b"x")),
    "urgent": (2, lambda peer: peer.victim.send(b"x", socket.MSG_OOB)),
    "request": (1, lambda peer: peer.ask()),
}
"""What rings, and how many doorbell bytes it counts."""


@contextlib.contextmanager
def choked(peer: Peer) -> Iterator[socket.socket]:
    """The kernel takes no byte of the victim's any more: the peer, whose descriptor is exposed, has counted all
    doorbell bytes as taken, and has taken none. Yields the victim's kernel socket."""
    with KernelSocket(fileno=os.dup(peer.victim.fileno())) as raw:
        choke(peer, raw)
        yield raw


def make_room(raw: socket.socket) -> None:
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)


def choke(peer: Peer, raw: socket.socket) -> None:
    half = 1 - peer.side
    peer.victim.sendall(b"unseen")
    peer.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)  # so large that it is not widened
    lie, settled = 0, 0
    while settled < 30:  # times 10 ms: a delayed ACK may make room once more
        for size in (1 << 16, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    lie += raw.send(bytes(size), socket.MSG_DONTWAIT)
                    settled = 0
        settled += 1
        time.sleep(0.01)
    rung = peer.region.get(half, "rung") + lie
    peer.region.set(half, "rung", rung)
    peer.region.set(half, "heard", rung)
    peer.region.set(half, "doorbell", EXPOSED)


def in_kernel(raw: socket.socket) -> int:
    """Bytes sent that the peer's kernel has not taken."""
    return int.from_bytes(fcntl.ioctl(raw, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def turn_while_ringing(peer: Peer, call: str) -> bool:
    """The victim waits in `call` until the kernel takes its doorbell bytes. Calls of another thread return meanwhile,
    and somebody has the turn and sees to room. Whether that was before the victim gave up: then its bytes go out."""
    half, side = 1 - peer.side, side_of(peer.victim)
    count, ring = CALLS[call]
    with choked(peer) as raw, peer.victim.dup() as beside:
        rung, before = peer.region.get(half, "rung"), in_kernel(raw)
        caller = Task(ring, peer)
        while peer.region.get(half, "rung") != rung + count:
            time.sleep(0)  # (the test's deadline ends this)
        with contextlib.suppress(ConnectionError):
            nothing_to_receive(beside)
            assert beside.send(b"y", socket.MSG_DONTWAIT) == 1  # in the ring; its doorbell byte is owed as well
            count += 1
            while not library().turn_try(side, SENDING):
                time.sleep(0)
            make_room(raw)
            library().turn_end(side, SENDING)
            caller.result()
            limit = time.monotonic() + 0.2  # (a request is not answered by a thread of the test's)
            while in_kernel(raw) != before + count and time.monotonic() < limit:
                time.sleep(0.001)
            return in_kernel(raw) == before + count
    return False


@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_doorbell_byte_finds_no_room_holds_no_turn(publishes: bool, call: str) -> None:
    for _ in range(ATTEMPTS):
        with on_ring(publishes) as peer:
            if turn_while_ringing(peer, call):
                return
    pytest.fail("whenever the turn could be had, the call had given up")


def turn_beside_a_post(peer: Peer) -> bool:
    """The victim has read what lay in the ring, and waits for the end of the peer's post before it takes its doorbell
    byte. Whether the turn could be had meanwhile."""
    half, side = peer.side, side_of(peer.victim)
    rung = peer.region.get(half, "rung") + 1
    peer.region.set(half, "ringing", 1)
    peer.region.set(half, "rung", rung)
    peer.tcp.sendall(b"d")
    peer.post(b"m")
    receiver = Task(peer.victim.recv, 1)
    while peer.region.get(half, "seen") != peer.posted or not library().turn_try(side, RECEIVING):
        time.sleep(0)  # (the test's deadline ends this)
    waits = peer.region.get(half, "heard") != rung
    peer.region.set(half, "ringing", 0)
    library().turn_end(side, RECEIVING)
    assert receiver.result() == b"m"
    assert peer.region.get(half, "heard") == rung
    until(lambda: not poll_mask(peer.victim, select.POLLIN), "the doorbell byte is taken")
    return waits


def test_a_receive_that_waits_for_the_end_of_a_post_holds_no_turn(publishes: bool) -> None:
    for _ in range(ATTEMPTS):
        with on_ring(publishes) as peer:
            if turn_beside_a_post(peer):
                return
    pytest.fail("whenever the turn could be had, the receive had given up")


def die_in_turn_to_send(side: int) -> None:
    """Its thread ends. (To the next one it makes no difference whether a process did.)"""
    holder = threading.Thread(target=take_turn, args=(side, SENDING))
    holder.start()
    holder.join()


def count_as_rung(peer: Peer, count: int) -> int:
    """What the victim has counted then."""
    half = 1 - peer.side
    rung = peer.region.get(half, "rung") + count
    peer.region.set(half, "rung", rung)
    return rung


def test_an_urgent_byte_and_the_doorbell_byte_behind_it_are_sent_for_a_dead_holder(publishes: bool) -> None:
    """It was killed when both were counted."""
    with on_ring(publishes) as peer:
        half = 1 - peer.side
        peer.region.set(half, "doorbell", EXPOSED)
        peer.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        number = 1 + 1  # behind the one that the victim has posted
        peer.region.set(half, "urgent", number << 32 | peer.region.get(half, "rung") + 1)
        count_as_rung(peer, 2)
        die_in_turn_to_send(side_of(peer.victim))
        peer.victim.sendall(b"x")
        assert len(read_exactly(peer.tcp, peer.region.get(half, "rung"))) == 3


class TooLate(Exception):
    """The machine was busy: what was to be shown has not begun."""


def in_time(body: Callable[[Peer], None]) -> Callable[[bool], None]:
    """A test: three attempts that are in time, each with a connection of its own."""

    def test(publishes: bool) -> None:
        done = 0
        for _ in range(ATTEMPTS):
            with on_ring(publishes) as peer, contextlib.suppress(TooLate):
                body(peer)
                done += 1
            if done == 3:
                return
        pytest.fail("always too late")

    test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
    return test


def result_in_time(task: Task) -> object:
    """Unless the call has given up meanwhile."""
    try:
        return task.result()
    except ConnectionError:
        raise TooLate from None


def rung_byte_comes(peer: Peer, raw: socket.socket, before: int) -> bool:
    """Whether every doorbell byte does that was counted since the kernel held `before` bytes. There is room now."""
    count = peer.region.get(1 - peer.side, "rung") - peer.region.get(1 - peer.side, "heard")
    limit = time.monotonic() + 5
    while in_kernel(raw) != before + count and time.monotonic() < limit:
        time.sleep(0.001)
    return in_kernel(raw) == before + count


@in_time
def test_a_doorbell_byte_for_which_a_dead_holder_found_no_room_is_sent(peer: Peer) -> None:
    """Nobody waits for room any more when the one who did is dead, and another one was killed in a turn: who takes
    that over waits."""
    half, side = 1 - peer.side, side_of(peer.victim)
    with choked(peer) as raw:
        rung, before = peer.region.get(half, "rung"), in_kernel(raw)
        with forked(lambda: peer.victim.send(b"x")) as pid:
            while peer.region.get(half, "rung") != rung + 1:
                time.sleep(0)  # (the test's deadline ends this)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        die_in_turn_to_send(side)
        sender = Task(peer.victim.send, b"y")
        while peer.region.get(half, "rung") != rung + 2:
            time.sleep(0)
        make_room(raw)
        came = rung_byte_comes(peer, raw, before)
        result_in_time(sender)
        assert came


@in_time
def test_a_doorbell_byte_is_sent_behind_the_turn_of_one_that_was_stopped(peer: Peer) -> None:
    """For longer than bytes may find no room, but not for so long that it waits for room itself."""
    half, side = 1 - peer.side, side_of(peer.victim)
    with choked(peer) as raw:
        rung, before = peer.region.get(half, "rung"), in_kernel(raw)
        began = time.monotonic()
        sender = Task(peer.victim.send, b"x")
        while peer.region.get(half, "rung") != rung + 1:
            time.sleep(0)
        while not library().turn_try(side, SENDING):
            time.sleep(0)
        make_room(raw)
        time.sleep(max(began + 0.18 - time.monotonic(), 0))
        held = time.monotonic() - began
        library().turn_end(side, SENDING)
        came = rung_byte_comes(peer, raw, before)
        result_in_time(sender)
        if held > 0.19:
            raise TooLate
        assert came


def urgent_byte_that_came(peer: Peer) -> bytes:
    """The first urgent byte finds no room in the kernel, the second one no credit. Empty if it took too long."""
    half = 1 - peer.side
    with choked(peer) as raw, peer.victim.dup() as beside:
        beside.settimeout(None)
        rung = peer.region.get(half, "rung")
        sender = Task(peer.victim.send, b"1", socket.MSG_OOB)
        while peer.region.get(half, "rung") != rung + 2:
            time.sleep(0)
        with contextlib.suppress(ConnectionError):
            with contextlib.suppress(BlockingIOError):
                while True:
                    beside.send(bytes(8192), socket.MSG_DONTWAIT)
            with pytest.raises(BlockingIOError):
                beside.send(b"2", socket.MSG_OOB | socket.MSG_DONTWAIT)
            make_room(raw)
            sender.result()
            peer.tcp.setblocking(False)
            while True:  # (the test's deadline ends this)
                with contextlib.suppress(BlockingIOError):
                    peer.tcp.recv(1 << 16)
                with contextlib.suppress(OSError):
                    return peer.tcp.recv(1, socket.MSG_OOB)
    return b""


def test_an_urgent_byte_that_has_no_credit_takes_no_place_of_one_that_had_no_room(publishes: bool) -> None:
    for _ in range(ATTEMPTS):
        with on_ring(publishes) as peer:
            if came := urgent_byte_that_came(peer):
                assert came == b"1"
                return
    pytest.fail("no urgent byte ever came")
