"""Bad input after the move: whatever a peer writes into the region, at worst its own connection is reset."""

import select
import socket
from collections.abc import Callable, Iterator

import pytest
from harness.hostile_peer import FIN, GONE, Peer, holdings, holdings_at_rest, hostile, violations
from harness.pairs import Pair, Task, deadline, path_of, raises_errno, until

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def moved(publishes: bool, healthy: Pair) -> Iterator[Peer]:
    """A hostile peer that behaved until now: both directions are on the ring. Nothing is left of it afterwards."""
    before = holdings_at_rest()
    with hostile(publishes) as peer:
        peer.meet()
        peer.move()
        peer.consent()
        peer.victim.sendall(b"s")
        assert peer.region.commit(1 - peer.side, 0) == (1, 1)
        assert peer.region.inlined(1 - peer.side, 0) == b"s"
        peer.post(b"r", ack=1)
        assert peer.victim.recv(1) == b"r"
        assert path_of(peer.victim) == "ring"
        yield peer
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


def assert_violated(peer: Peer, caplog: pytest.LogCaptureFixture, violation: str) -> None:
    """It was reset and told: the peer sees RST, the log names what it did, and later calls find nobody."""
    assert violations(caplog) == [violation]
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - which call fails is the kernel's to say
        while peer.tcp.recv(1 << 16):
            pass
    assert peer.victim.recv(1) == b""
    with pytest.raises(BrokenPipeError):
        peer.victim.send(b"x")


def send_much(victim: socket.socket) -> None:
    for _ in range(10):
        victim.send(b"x" * 600)


def receive_behind(victim: socket.socket) -> None:
    assert victim.recv(5) == b"sound"
    victim.recv(100)


def send_behind(victim: socket.socket) -> None:
    assert victim.recv(10) == b"data"
    send_much(victim)


FAULTS: dict[str, tuple[Callable[[Peer], object], Callable[[socket.socket], object], str]] = {
    "descriptor": (
        lambda peer: (peer.post(b"sound"), peer.post(b"lies", length=0)),
        receive_behind,
        "descriptor with an impossible length",
    ),
    "ACK": (lambda peer: peer.region.set(1 - peer.side, "acked", 3), send_much, "ACK of a descriptor never posted"),
    "piggybacked ACK": (lambda peer: peer.post(b"data", ack=3), send_behind, "ACK of a descriptor never posted"),
    "FIN": (
        lambda peer: (peer.region.set(peer.side, "fin", FIN | 5), peer.wake()),
        lambda victim: victim.recv(1),
        "FIN at an impossible place",
    ),
}
"""What the peer does, the call that finds it, and what is logged. (All that the ring calls a violation is in
test_ring.py.)"""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_violation_resets_the_connection(moved, fault, caplog):
    act, call, violation = FAULTS[fault]
    act(moved)
    with raises_errno(104):
        call(moved.victim)
    assert_violated(moved, caplog, violation)


def test_a_sleeping_receiver_is_told(moved, caplog):
    reading = Task(moved.victim.recv, 10).until_asleep()
    moved.post(b"lies", type=77)
    with raises_errno(104):
        reading.result()
    assert_violated(moved, caplog, "descriptor of an unknown type")


def test_piggybacked_ack_older_than_one_seen_is_no_violation(moved, caplog):
    """Packets of two threads may cross."""
    moved.post(b"data", ack=0)
    assert moved.victim.recv(10) == b"data"
    moved.victim.send(b"x" * 1024)
    moved.region.set(1 - moved.side, "acked", 2)
    moved.victim.send(b"x" * 1024)
    assert not violations(caplog)


@pytest.mark.parametrize("polls", [False, True])
def test_switch_offset_in_the_past(polls, publishes, healthy, caplog):
    with hostile(publishes) as peer:
        peer.meet()
        peer.region.set(peer.side, "switch_at", 1)
        peer.victim.settimeout(None)
        if polls:
            peer.post(b"lies")
            assert select.select([peer.victim], [], [], 20)[0]
        peer.wake()
        with raises_errno(104):
            peer.victim.recv(1)
        assert_violated(peer, caplog, "switch offset in the past")


def test_switch_offset_that_is_never_reached(publishes, healthy, caplog):
    """What comes through the kernel is read as data: the peer's own stream, and its own end."""
    with hostile(publishes) as peer:
        peer.meet()
        peer.region.set(peer.side, "switch_at", 1 << 40)
        peer.post(b"ring")
        peer.send(b"kernel")
        assert peer.victim.recv(6) == b"kernel"
        peer.tcp.shutdown(socket.SHUT_WR)
        assert peer.victim.recv(6) == b""
        assert not violations(caplog)


def test_peer_that_says_it_has_gone_and_stays(moved):
    """What is sent then goes to the kernel, which it does not read either: the timeout holds all the same."""
    moved.region.set(1 - moved.side, "doorbell", GONE)
    moved.victim.settimeout(0.2)
    with deadline(5), pytest.raises((TimeoutError, ConnectionResetError)):
        moved.victim.sendall(bytes(50_000_000))


def test_wait_for_credits_after_a_piggybacked_ack(moved):
    """The newest ACK came with DATA, so the one that comes alone is older: that is no news to poll for."""
    before = fastsock.stats().polls_paid
    moved.victim.settimeout(0.2)
    with deadline(5), pytest.raises(TimeoutError):
        moved.victim.sendall(bytes(50_000_000))
    assert fastsock.stats().polls_paid - before < 10
