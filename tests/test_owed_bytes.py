"""Doorbell bytes that are owed: counted as rung, and without room in the kernel so far.

What becomes of them when the one who waits for room has lost his descriptor, when some of them go out, when the
connection ends, and beside a plug."""

import contextlib
import ctypes
import os
import select
import socket
import time
from collections.abc import Callable

import pytest
from differential.processes import Gate, forked
from hostile import Peer, on_ring
from native.ring import library
from pairs import KernelSocket, Task, poll_mask, read_to_eof, reset, until
from test_turns_while_ringing import (
    TooLate,
    choke,
    choked,
    count_as_rung,
    in_kernel,
    in_time,
    make_room,
    result_in_time,
)
from test_turns_while_waiting import SENDING, side_of, take_turn

from fastsock._native import vi

pytestmark = pytest.mark.usefixtures("bounded")

HOUR = 3_600_000_000_000
"""Nanoseconds."""


def in_turn(side: int, act: Callable[[], object]) -> None:
    take_turn(side, SENDING)
    act()
    library().turn_end(side, SENDING)


def owe(side: int, count: int, ago: int) -> None:
    """The side owes so many bytes, for so many nanoseconds. (For less than none: nobody gives up.) In the turn."""
    library().side_owes(side, count, time.monotonic_ns() - ago)


def waiting(peer: Peer, side: int, count: int = 1) -> Task:
    """A send of the victim's, which waits for room for `count` bytes and does not give up."""
    rung = peer.region.get(1 - peer.side, "rung")
    sender = Task(peer.victim.send, b"x")
    while peer.region.get(1 - peer.side, "rung") != rung + 1:
        time.sleep(0)  # (the test's deadline ends this)
    in_turn(side, lambda: owe(side, count, -HOUR))
    count_as_rung(peer, count - 1)
    time.sleep(0.01)
    if not sender.is_alive():
        raise TooLate
    return sender


@in_time
def test_another_holder_sends_them_when_the_descriptor_of_the_one_who_waits_is_replaced(peer: Peer) -> None:
    """By C code, so that this process learns it late."""
    half, number, side = 1 - peer.side, peer.victim.fileno(), side_of(peer.victim)
    with Gate() as room, KernelSocket() as other, KernelSocket(fileno=os.dup(number)) as raw:
        with forked(lambda: (room.wait(), peer.victim.send(b"y"))):
            choke(peer, raw)
            before = in_kernel(raw)
            try:
                sender = waiting(peer, side)
                assert ctypes.CDLL(None).dup2(other.fileno(), number) == number
                assert vi.find(number) is None
                sender.join(30)
                assert not sender.is_alive()
                assert library().side_owed(side) == 1
                make_room(raw)
            finally:
                room.open()
        until(lambda: in_kernel(raw) == before + 2, "both bytes")
        assert peer.region.get(half, "rung") - peer.region.get(half, "heard") == 2


@in_time
def test_the_time_begins_anew_when_some_of_them_go_out(peer: Peer) -> None:
    """The peer takes some, so it has not stopped reading."""
    count = 100_000  # more than one segment takes
    side = side_of(peer.victim)
    with choked(peer) as raw:
        size = raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
        sender = waiting(peer, side, count)

        def room_for_a_segment() -> None:
            nonlocal size
            while True:
                try:
                    raw.send(b"d", socket.MSG_DONTWAIT)
                    break
                except BlockingIOError:
                    size += 2048
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
            owe(side, count, HOUR)

        in_turn(side, room_for_a_segment)
        while library().side_owed(side) == count and sender.is_alive():
            time.sleep(0)
        if library().side_owed(side) == count:
            raise TooLate  # it could not get the turn for too long
        make_room(raw)
        assert result_in_time(sender) == 1
        assert library().side_owed(side) == 0


@in_time
def test_what_there_is_room_for_goes_out_in_front_of_the_end(peer: Peer) -> None:
    """Whoever waits for room may look again only when the kernel takes no more."""
    half, side = 1 - peer.side, side_of(peer.victim)
    unread = peer.region.get(half, "rung") - peer.region.get(half, "heard")

    def count() -> None:
        count_as_rung(peer, 1)
        owe(side, 1, -HOUR)

    in_turn(side, count)
    peer.victim.shutdown(socket.SHUT_WR)
    assert len(read_to_eof(peer.tcp)) == unread + 1
    assert library().side_owed(side) == 0


@in_time
def test_a_reset_ends_the_wait_for_room(peer: Peer) -> None:
    side = side_of(peer.victim)
    with choked(peer):
        sender = waiting(peer, side)
        reset(peer.tcp)
        assert sender.result() == 1
        assert library().side_owed(side) == 0


def fill_ring(peer: Peer) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            peer.victim.send(bytes(8192))


def test_a_plug_comes_behind_them(publishes: bool) -> None:
    with on_ring(publishes) as peer:
        half, side = 1 - peer.side, side_of(peer.victim)
        with choked(peer) as raw:
            peer.victim.setblocking(False)
            peer.region.set(half, "doorbell", 0)
            rung, before = count_as_rung(peer, 1), in_kernel(raw)
            in_turn(side, lambda: owe(side, 1, -HOUR))
            fill_ring(peer)
            assert library().side_owed(side) == 1
            assert (peer.region.get(half, "rung"), in_kernel(raw)) == (rung, before)
            make_room(raw)
            fill_ring(peer)
            assert library().side_owed(side) == 0
            assert in_kernel(raw) == before + 1 + peer.region.get(half, "rung") - rung
            assert not poll_mask(peer.victim, select.POLLOUT)
