"""The way out of an end that has shut receiving (SHUT_RD): a look that finds nothing gets "end of stream" then from the
kernel, and the peer's stream goes on all the same, as on TCP."""

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import EXPOSED, GO_ON, RETURNING, Peer, events, on_ring
from pairs import SECONDS, KernelSocket, Task, payload, until


@pytest.fixture(params=[False, True], ids=["seeks", "publishes"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """A connection with both directions on the ring, whose victim has shut receiving."""
    with on_ring(request.param) as peer:
        yield peer


def read_when_there(sock: socket.socket, count: int) -> bytes:
    """So many bytes. Nothing but the time tells that no more come: a socket that has shut receiving says "end" wherever
    nothing is there."""
    data = bytearray()
    limit = time.monotonic() + SECONDS
    while len(data) < count:
        part = sock.recv(count - len(data), socket.MSG_DONTWAIT)
        data += part
        if not part:
            assert time.monotonic() < limit, f"{len(data)} of {count} bytes"
            time.sleep(0.002)
    return bytes(data)


def begin_to_leave(peer: Peer) -> Task:
    """The victim shuts receiving and is being detached in another thread; the result is a raw socket."""
    peer.victim.shutdown(socket.SHUT_RD)
    return Task(lambda: KernelSocket(fileno=peer.victim.detach()))


def running(process: int) -> bool:
    """Whether a process runs that is not ours to wait for. (A zombie has ended.)"""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_collected(peer: Peer) -> None:
    until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")


def test_a_part_that_was_sent_again_and_comes_later(peer: Peer) -> None:
    peer.post(payload(5_000))
    leaving = begin_to_leave(peer)
    peer.region.set(peer.side, "settled", RETURNING)
    peer.region.set(peer.side, "returned", 3_001)
    peer.go_back()
    peer.tcp.sendall(payload(5_000)[:1_000])
    with leaving.result() as raw:
        assert read_when_there(raw, 1_000) == payload(5_000)[:1_000]
        peer.tcp.sendall(payload(5_000)[1_000:3_000])
        assert read_when_there(raw, 4_000) == payload(5_000)[1_000:]
        peer.tcp.sendall(b"kernel")
        assert read_when_there(raw, 6) == b"kernel"


def test_the_peer_has_begun_to_send_again_and_goes_on_later(peer: Peer) -> None:
    """How much it sends again is not known until it says so."""
    peer.post(payload(5_000))
    leaving = begin_to_leave(peer)
    peer.go_back()
    until_collected(peer)
    peer.region.set(peer.side, "settled", RETURNING)
    peer.tcp.sendall(payload(5_000)[:1_234])
    with leaving.result() as raw:
        assert read_when_there(raw, 1_234) == payload(5_000)[:1_234]
        peer.tcp.sendall(payload(5_000)[1_234:2_000])
        assert read_when_there(raw, 766) == payload(5_000)[1_234:2_000]
        peer.region.set(peer.side, "returned", 2_001)
        peer.tcp.sendall(b"kernel")
        assert read_when_there(raw, 3_006) == payload(5_000)[2_000:] + b"kernel"


def test_late_doorbell_bytes_are_not_taken_for_the_stream(peer: Peer) -> None:
    """Counted by the peer, and sent when the descriptor is somebody else's."""
    peer.victim.fileno()
    assert peer.region.get(peer.side, "doorbell") & EXPOSED
    leaving = begin_to_leave(peer)
    peer.region.set(peer.side, "rung", 1_000)
    peer.go_back()
    with leaving.result() as raw:
        peer.tcp.sendall(bytes(1_000) + b"kernel")
        assert read_when_there(raw, 6) == b"kernel"


def test_a_peer_that_goes_on_in_the_ring_for_a_while(peer: Peer) -> None:
    leaving = begin_to_leave(peer)
    with leaving.result() as raw:
        time.sleep(0.05)  # the bridge finds nothing
        peer.post(b"in the ring")
        assert read_when_there(raw, 11) == b"in the ring"
        peer.go_back()
        until(lambda: peer.region.get(peer.side, "settled") == GO_ON, "settled by the bridge")
        peer.tcp.sendall(b"kernel")
        assert read_when_there(raw, 6) == b"kernel"


@pytest.mark.parametrize("how", ["close", "shut_wr"])
def test_the_bridge_ends_with_the_reader(peer: Peer, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Both directions are shut then: no more can come."""
    caplog.set_level(logging.INFO, "fastsock")
    leaving = begin_to_leave(peer)
    peer.post(b"unread")
    with leaving.result() as raw:
        (event,) = events(caplog, "fastsock.bridge")
        process = int(event.partition("process=")[2].split()[0])
        assert read_when_there(raw, 6) == b"unread"
        if how == "close":
            raw.close()
        else:
            raw.shutdown(socket.SHUT_WR)
        until(lambda: not running(process), "the bridge ends")
        assert peer.tcp.recv(1) == b""
