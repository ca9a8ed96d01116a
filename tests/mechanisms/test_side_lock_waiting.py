"""No lock is held while its holder waits: calls of other threads and processes go on beside one that waits."""

import os
import select
import signal
import socket

import pytest
from conformance.blocking.processes import Gate, forked
from harness.hostile_peer import GONE, LEFT, RETURNING, Peer
from harness.pairs import SECONDS, Task, inside, payload, read_exactly, taken_back, until
from native.ring import library

pytestmark = pytest.mark.usefixtures("bounded")
RECEIVING, SENDING = 0, 1
ATTEMPTS = 50
"""To be within a few milliseconds of something, on a loaded machine too."""


def side_of(sock: socket.socket) -> int:
    library()  # is built by its first use, which takes seconds
    return int(inside(sock)["side"])


def take_lock(side: int, lock: int = RECEIVING) -> None:
    until(lambda: library().lock_try(side, lock), "the lock")


def detached(peer: Peer) -> socket.socket:
    return taken_back(peer.victim, SECONDS)


def collected(peer: Peer, count: int) -> Task:
    """The victim leaves the ring in another thread, and has taken `count` bytes that lay unread: the peer is to send
    them again, and does not."""
    peer.post(payload(count))
    leaver = Task(detached, peer)
    until(lambda: peer.region.get(peer.side, "ready") == LEFT, "LEFT")
    peer.go_back()
    until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")
    return leaver


def give_back(peer: Peer, data: bytes) -> None:
    peer.region.set(peer.side, "settled", RETURNING)
    peer.tcp.sendall(data)
    peer.region.set(peer.side, "returned", 1 + len(data))


def nothing_to_receive(sock: socket.socket) -> None:
    sock.settimeout(None)  # with a timeout, Python waits in spite of MSG_DONTWAIT
    with pytest.raises(BlockingIOError):
        sock.recv(1, socket.MSG_DONTWAIT)


def test_a_leaver_that_waits_for_the_peer_holds_no_lock(peer: Peer) -> None:
    """It has what lay unread, so a receive of another thread finds nothing; all is there once it is settled."""
    side, beside = side_of(peer.victim), peer.victim.dup()
    with beside:
        leaver = collected(peer, 5000)
        beside.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        for lock in (RECEIVING, SENDING):
            take_lock(side, lock)
            library().lock_release(side, lock)
        nothing_to_receive(beside)
        assert peer.region.get(peer.side, "settled") == 0, "those calls have waited until the leaver gave up"
        give_back(peer, payload(5000))
        with leaver.result() as raw:
            assert read_exactly(raw, 5000) == payload(5000)


def test_a_leaver_that_is_killed_with_what_lay_unread_leaves_a_reset(peer: Peer) -> None:
    """Its sibling is not given what is left for the whole stream, nor waits for ever."""
    peer.post(payload(5000))
    with forked(detached, peer) as pid:
        until(lambda: peer.region.get(peer.side, "ready") == LEFT, "LEFT")
        peer.go_back()
        until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")
        nothing_to_receive(peer.victim)
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ConnectionResetError):
        peer.victim.recv(1)


@pytest.mark.parametrize("closes", ["behind the bytes", "before they come"])
def test_a_reader_that_closes_with_bytes_in_its_bridge_leaves_a_reset_to_its_sibling(peer: Peer, closes: str) -> None:
    """What the bridge had taken is lost. The sibling is not given what follows for the whole stream. The peer need not
    send any more for that."""

    def sibling() -> None:
        asked.wait()
        try:
            got = peer.victim.recv(100)
        except ConnectionResetError:
            peer.region.set(theirs, "finack", 77)  # a word of the region that nobody else writes
        else:
            peer.region.set(theirs, "finack", 1 + len(got))
        over.wait()

    theirs = 1 - peer.side
    with Gate() as over, Gate() as asked, forked(sibling):
        with detached(peer) as raw:  # the peer says nothing, so there is a bridge
            if closes == "behind the bytes":
                peer.post(payload(5000))
                assert select.select([raw], [], [], SECONDS)[0], "nothing comes over the bridge"
        if closes == "before they come":
            assert peer.tcp.recv(1) == b""
            peer.post(payload(5000))
        until(lambda: peer.region.get(peer.side, "doorbell") & GONE, "the bridge gives up")
        peer.post(b"behind the hole")
        asked.open()
        until(lambda: peer.region.get(theirs, "finack"), "the sibling's receive returns")
        assert peer.region.get(theirs, "finack") == 77
        over.open()
    if closes == "behind the bytes":
        with pytest.raises(ConnectionResetError):
            peer.tcp.recv(1)
