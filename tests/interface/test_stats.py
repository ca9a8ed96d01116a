"""The statistics: frozen, and they add up."""

import select
from collections.abc import Callable

import attrs
import pytest
from harness.hostile_peer import hostile
from harness.pairs import KernelSocket, Task, make_pair, payload, read_exactly

import fastsock
from fastsock import Path, Stats

pytestmark = pytest.mark.usefixtures("bounded")


class Since:
    """What was counted since this object was made."""

    def __init__(self) -> None:
        self.before = fastsock.stats()

    def __getattr__(self, name: str) -> int:
        return getattr(fastsock.stats(), name) - getattr(self.before, name)


def test_frozen():
    stats = fastsock.stats()
    assert isinstance(stats, Stats)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        stats.bytes_sent = 1
    with pytest.raises(TypeError):
        stats.fallback_reasons["x"] = 1
    assert set(attrs.asdict(stats)) == {
        "connections_ring", "connections_tcp", "fallback_reasons", "bytes_sent", "bytes_received", "messages_sent",
        "messages_received", "acks_alone", "acks_piggybacked", "sends_combined", "doorbells_rung", "polls_paid",
        "polls_unpaid",
        "poll_ns", "poll_unpaid_ns", "sleeps", "system_calls",
    }  # fmt: skip


def assert_adds_up() -> None:
    stats = fastsock.stats()
    assert sum(stats.fallback_reasons.values()) == stats.connections_tcp
    assert all(count > 0 for count in stats.fallback_reasons.values())


def test_each_connection_counts_at_each_end():
    since = Since()
    with make_pair("ring"):
        assert (since.connections_ring, since.connections_tcp) == (2, 0)
        assert_adds_up()
        with make_pair("midstream"):
            assert (since.connections_ring, since.connections_tcp) == (2, 2)
            assert_adds_up()
        with make_pair("one-sided"), make_pair("kernel"):
            assert (since.connections_ring, since.connections_tcp) == (2, 3)
            assert_adds_up()
    # What has ended stays counted.
    assert (since.connections_ring, since.connections_tcp) == (2, 3)
    assert_adds_up()


def test_bytes_and_messages_on_the_ring():
    with make_pair("ring") as (near, far):
        since = Since()
        data = payload(1_000_000)
        for sender, receiver in ((near, far), (far, near)):
            sending = Task(sender.sendall, data)
            assert read_exactly(receiver, len(data)) == data
            sending.result()
        assert since.bytes_sent == since.bytes_received == 2_000_000
        assert since.messages_sent == since.messages_received >= 2 * 1_000_000 // 32768
    assert since.bytes_sent == since.bytes_received == 2_000_000  # the endpoints are gone, their counts are not


def test_peeked_bytes_count_once():
    import socket

    with make_pair("ring") as (near, far):
        since = Since()
        near.sendall(b"x" * 100)
        for _ in range(3):
            assert far.recv(50, socket.MSG_PEEK) == b"x" * 50
        assert read_exactly(far, 100) == b"x" * 100
        assert since.bytes_received == 100


@pytest.mark.parametrize("way", ["poll", "select", "epoll"])
def test_time_that_a_wait_for_several_polls_in_vain(way: str):
    with make_pair("ring") as pair, make_pair("ring") as other, select.epoll() as instance:
        poll = select.poll()
        for fd in (pair.far.fileno(), other.far.fileno()):
            poll.register(fd, select.POLLIN)
            instance.register(fd, select.EPOLLIN)
        waits: dict[str, Callable[[], object]] = {
            "poll": lambda: poll.poll(5),
            "select": lambda: select.select([pair.far, other.far], [], [], 0.005)[0],
            "epoll": lambda: instance.poll(0.005),
        }
        since = Since()
        for _ in range(20):
            assert not waits[way]()
        assert since.poll_unpaid_ns == since.poll_ns


def test_path_of_tells_the_directions():
    with hostile() as peer:
        assert fastsock.path_of(peer.victim) == Path("tcp", "too few operations")
        peer.chat()
        assert fastsock.path_of(peer.victim) == Path("tcp", "looking for the peer")
        peer.meet()
        assert fastsock.path_of(peer.victim).path == "tcp"
        peer.move()
        peer.post()
        assert peer.victim.recv(4) == b"ring"
        assert fastsock.path_of(peer.victim) == Path("ring", "receiving")
        peer.consent()
        peer.victim.send(b"x")
        assert fastsock.path_of(peer.victim) == Path("ring", "both directions")


def test_path_of_anything_else():
    import socket

    nothing = Path("tcp", "not a fastsock socket")
    with KernelSocket() as kernel, fastsock.socket() as fresh, fastsock.socket(type=socket.SOCK_DGRAM) as datagrams:
        for sock in (kernel, fresh, datagrams):
            assert fastsock.path_of(sock) == nothing
    assert fastsock.path_of(None) == nothing
    path = fastsock.path_of(kernel)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        path.path = "ring"
