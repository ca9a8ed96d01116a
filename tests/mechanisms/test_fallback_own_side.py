"""The way out of a victim whose peer is written by hand: what the protocol says of it, and what a peer could do wrong.

With `shut` the victim has shut receiving (SHUT_RD): a look that finds nothing gets "end of stream" then from the
kernel, and the peer's stream goes on all the same, as on TCP.
"""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator

import pytest
from harness.hostile_peer import BACK, GO_ON, LEFT, READY, RETURNING, TOO_LATE, Peer, events
from harness.pairs import SECONDS, Task, payload, read_exactly, taken_back, until
from hostile.test_fallback_hostile import theirs

pytestmark = pytest.mark.usefixtures("bounded")

DATA = payload(5_000)


@pytest.fixture(params=[False, True], ids=["open", "shut"])
def shut(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def detached(peer: Peer, shut: bool = False) -> socket.socket:
    """The victim's descriptor, raw."""
    if shut:
        peer.victim.shutdown(socket.SHUT_RD)
    return taken_back(peer.victim, SECONDS)


def begin_to_leave(peer: Peer, shut: bool = False) -> Task:
    """The victim is being detached in another thread; the result is a raw socket."""
    task = Task(detached, peer, shut)
    until(lambda: peer.region.get(peer.side, "ready") == LEFT, "LEFT")
    return task


def until_collected(peer: Peer) -> None:
    until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")


def read_when_there(sock: socket.socket, count: int) -> bytes:
    """So many bytes. Nothing but the time tells that no more come: a socket that has shut receiving says "end" wherever
    nothing is there."""
    data = bytearray()
    limit = time.monotonic() + SECONDS
    while len(data) < count:
        with contextlib.suppress(BlockingIOError):
            data += sock.recv(count - len(data), socket.MSG_DONTWAIT)
        assert time.monotonic() < limit, f"{len(data)} of {count} bytes"
        time.sleep(0.001)
    return bytes(data)


def goes_on(peer: Peer, raw: socket.socket, unread: bytes = b"") -> None:
    """What was not read yet comes, and what the peer sends through the kernel behind it."""
    peer.tcp.sendall(b"kernel")
    assert read_when_there(raw, len(unread) + 6) == unread + b"kernel"
    raw.sendall(b"answer")
    assert read_exactly(peer.tcp, 6) == b"answer"


def test_nothing_unread(peer: Peer, shut: bool) -> None:
    leaving = begin_to_leave(peer, shut)
    peer.go_back()
    until(lambda: peer.region.get(peer.side, "settled"), "settled")
    assert peer.region.get(peer.side, "settled") == GO_ON
    with leaving.result() as raw:
        goes_on(peer, raw)
        assert peer.region.get(theirs(peer), "fin") == BACK | 1
        assert peer.region.get(theirs(peer), "ready") == TOO_LATE


def test_a_peer_that_does_nothing_is_left_behind_a_bridge(
    peer: Peer, shut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with begin_to_leave(peer, shut).result() as raw:
        assert events(caplog, "fastsock.bridge")
        time.sleep(0.05)  # the bridge finds nothing
        peer.post(b"in the ring")
        assert read_when_there(raw, 11) == b"in the ring"
        raw.sendall(b"answer")
        assert read_exactly(peer.tcp, 6) == b"answer"
        peer.go_back()
        until(lambda: peer.region.get(peer.side, "settled") == GO_ON, "settled by the bridge")
        goes_on(peer, raw)


def test_unread_and_the_peer_does_not_send_it_again(peer: Peer, shut: bool) -> None:
    peer.post(DATA)
    leaving = begin_to_leave(peer, shut)
    peer.go_back()
    with leaving.result() as raw:
        assert read_when_there(raw, len(DATA)) == DATA
        assert peer.region.get(peer.side, "settled") == GO_ON
        goes_on(peer, raw)


@pytest.mark.parametrize("then", ["goes on", "dies"])
def test_the_peer_has_begun_to_send_again(peer: Peer, shut: bool, then: str) -> None:
    """How much it sends again is not known until it says so: what the kernel has is read."""
    peer.post(DATA)
    leaving = begin_to_leave(peer, shut)
    peer.go_back()
    until_collected(peer)
    peer.region.set(peer.side, "settled", RETURNING)
    peer.tcp.sendall(DATA[:1_234])
    if then == "dies":
        peer.tcp.shutdown(socket.SHUT_WR)
        with leaving.result() as raw:
            assert read_when_there(raw, len(DATA)) == DATA
            assert raw.recv(1) == b""
        return
    with leaving.result() as raw:
        assert read_when_there(raw, 1_234) == DATA[:1_234]
        peer.tcp.sendall(DATA[1_234:2_000])
        assert read_when_there(raw, 766) == DATA[1_234:2_000]
        peer.region.set(peer.side, "returned", 2_001)
        goes_on(peer, raw, DATA[2_000:])


def test_too_late(peer: Peer, shut: bool) -> None:
    """The peer has left itself and takes nothing back: what lies unread crosses a bridge."""
    peer.post(DATA)
    peer.go_back()
    assert peer.region.get(peer.side, "ready") == READY
    peer.region.set(peer.side, "ready", TOO_LATE)
    with detached(peer, shut) as raw:
        goes_on(peer, raw, DATA)


@contextlib.contextmanager
def no_parcels() -> Iterator[None]:
    """No file can be written, as under `ulimit -f 0`: nor the memory in which a leaver keeps what lay unread."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_leaver_without_memory_for_what_lies_unread_loses_nothing(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes nothing then: a bridge carries what lies in the ring, and what comes."""
    peer.post(DATA)
    with no_parcels():
        leaving = begin_to_leave(peer)
        peer.go_back()
        raw = leaving.result()
    with raw:
        assert events(caplog, "fastsock.bridge")
        assert read_exactly(raw, len(DATA)) == DATA
        until(lambda: peer.region.get(peer.side, "settled") == GO_ON, "settled")
        goes_on(peer, raw)
