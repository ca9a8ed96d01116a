"""No turn is held while its holder waits: for room in the kernel for a doorbell byte, or for the end of a post.

What shows it is what can be done in the turn while the other one waits. (Who holds the turn while he waits has given
up when it can be had.)
"""

import contextlib
import fcntl
import os
import select
import socket
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from hostile import EXPOSED, Peer, on_ring
from native.ring import library
from pairs import KernelSocket, Task, deadline, poll_mask, until
from test_turns_while_waiting import nothing_to_receive, side_of

RECEIVING, SENDING = 0, 1
ATTEMPTS = 20
"""To be within some milliseconds of something, on a loaded machine too. Each with a connection of its own."""

Calls = dict[str, tuple[int, Callable[[Peer], object]]]
CALLS: Calls = {
    "send": (1, lambda peer: peer.victim.send(b"x")),
    "urgent": (2, lambda peer: peer.victim.send(b"x", socket.MSG_OOB)),
    "request": (1, lambda peer: peer.ask()),
}
"""What rings, and how many doorbell bytes it counts."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(40):
        yield


@pytest.fixture(params=[False, True], ids=["seeker", "publisher"])
def publishes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def choke(peer: Peer, raw: socket.socket) -> None:
    """The kernel takes no byte of the victim's any more: the peer, whose descriptor is exposed, has counted all
    doorbell bytes as taken, and has taken none. `raw` is the victim's kernel socket."""
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
    with KernelSocket(fileno=os.dup(peer.victim.fileno())) as raw, peer.victim.dup() as beside:
        choke(peer, raw)
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
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
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
