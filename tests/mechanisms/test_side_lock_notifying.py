"""No lock is held while its holder waits: for room in the kernel for a doorbell byte, or for the end of a post. What is
owed meanwhile is sent, whoever is killed or stopped.

What shows it is what can be done under the lock while the other one waits. (Who holds the lock while he waits has given
up when it can be had.)
"""

import contextlib
import fcntl
import os
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from conformance.blocking.processes import forked
from harness.hostile_peer import EXPOSED, Peer, on_ring
from harness.pairs import KernelSocket, Task
from native.ring import library

from mechanisms.test_side_lock_waiting import SENDING, nothing_to_receive, side_of, take_lock

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


def lock_while_ringing(peer: Peer, call: str) -> bool:
    """The victim waits in `call` until the kernel takes its doorbell bytes. Calls of another thread return meanwhile,
    and somebody has the lock and sees to room. Whether that was before the victim gave up: then its bytes go out."""
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
            while not library().lock_try(side, SENDING):
                time.sleep(0)
            make_room(raw)
            library().lock_release(side, SENDING)
            caller.result()
            limit = time.monotonic() + 0.2  # (a request is not answered by a thread of the test's)
            while in_kernel(raw) != before + count and time.monotonic() < limit:
                time.sleep(0.001)
            return in_kernel(raw) == before + count
    return False


@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_doorbell_byte_finds_no_room_holds_no_lock(publishes: bool, call: str) -> None:
    for _ in range(ATTEMPTS):
        with on_ring(publishes) as peer:
            if lock_while_ringing(peer, call):
                return
    pytest.fail("whenever the lock could be had, the call had given up")


def count_as_rung(peer: Peer, count: int) -> int:
    """What the victim has counted then."""
    half = 1 - peer.side
    rung = peer.region.get(half, "rung") + count
    peer.region.set(half, "rung", rung)
    return rung


def dead_holders_byte(peer: Peer) -> bool:
    """A holder that waited for room is dead, and another one was killed with the lock: who takes that over waits.
    Whether each doorbell byte comes that was counted. ConnectionError: the machine was busy, and the call gave up."""
    half, side = 1 - peer.side, side_of(peer.victim)
    with choked(peer) as raw:
        rung, before = peer.region.get(half, "rung"), in_kernel(raw)
        with forked(lambda: peer.victim.send(b"x")) as pid:
            while peer.region.get(half, "rung") != rung + 1:
                time.sleep(0)  # (the test's deadline ends this)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        Task(take_lock, side, SENDING).result()  # (by a thread that ends; to the next one a dead process is the same)
        sender = Task(peer.victim.send, b"y")
        while peer.region.get(half, "rung") != rung + 2:
            time.sleep(0)
        make_room(raw)
        limit = time.monotonic() + 5
        while in_kernel(raw) != before + 2 and time.monotonic() < limit:
            time.sleep(0.001)
        came = in_kernel(raw) == before + 2
        sender.result()
        return came


def test_a_doorbell_byte_for_which_a_dead_holder_found_no_room_is_sent(publishes: bool) -> None:
    for _ in range(ATTEMPTS):
        with on_ring(publishes) as peer, contextlib.suppress(ConnectionError):
            assert dead_holders_byte(peer)
            return
    pytest.fail("always too late")
