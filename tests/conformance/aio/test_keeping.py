"""The way out of a loop's connection whose peer cannot send again what lies unread: the transport keeps it."""

from __future__ import annotations

from typing import Any

import pytest
from harness.hostile_peer import BACK, LEFT, RETURNING, Peer, on_ring
from harness.pairs import Task, payload, read_exactly, until

from conformance.aio.kit import LOOPS, Recorder, World

UNREAD = payload(5_000)
PART = 1_234
"""Of what lies unread, sent once more."""


pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(params=LOOPS)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param, "ring")


async def paused(world: World, peer: Peer) -> Recorder:
    """The victim's end in a loop that does not read, with bytes unread."""
    protocol = Recorder()
    await world.loop.create_connection(lambda: protocol, sock=peer.victim)
    await world.until(lambda: world.on_ring(protocol))
    protocol.transport.pause_reading()
    peer.post(UNREAD)
    return protocol


def stop_in_the_middle(peer: Peer, sends: int = 0, says: bool = False) -> None:
    """The peer's part of the way out, up to where it stops: behind BACK, or behind what it has sent once more of the
    parcel, or behind the word how much that was."""
    until(lambda: peer.region.get(peer.side, "ready") == LEFT, "the victim leaves")
    peer.region.set(peer.side, "fin", BACK | peer.posted)
    peer.wake()
    if not sends:
        return
    until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")
    peer.region.set(peer.side, "settled", RETURNING)
    peer.tcp.sendall(UNREAD[:sends])
    if says:
        peer.region.set(peer.side, "returned", 1 + sends)


def hand_out(protocol: Any, peer: Peer, *how: Any) -> None:
    stopping = Task(stop_in_the_middle, peer, *how)
    protocol.transport.get_extra_info("socket").fileno()
    stopping.result()


@pytest.mark.parametrize("sends", [0, PART, len(UNREAD)], ids=["nothing", "a part", "all"])
def test_what_the_peer_does_not_send_again_comes_to_the_protocol(world: World, sends: int) -> None:
    async def body() -> None:
        protocol = await paused(world, peer)
        hand_out(protocol, peer, sends, True)
        peer.tcp.sendall(b"kernel")
        protocol.transport.resume_reading()
        await world.until(lambda: len(protocol.data) >= len(UNREAD) + 6)
        assert bytes(protocol.data) == UNREAD + b"kernel"
        protocol.transport.write(b"answer")
        assert await world.loop.run_in_executor(None, read_exactly, peer.tcp, 6) == b"answer"
        assert not protocol.lost
        protocol.transport.abort()
        await world.until(lambda: protocol.lost)

    with on_ring(False) as peer:
        world.run(body(), 20)


def test_a_peer_that_is_stopped_within_one_send_is_given_up(world: World) -> None:
    """Nobody knows how much of the parcel the kernel has: both ends get a reset, and neither a stream with a hole."""

    async def body() -> None:
        protocol = await paused(world, peer)
        hand_out(protocol, peer, PART)
        protocol.transport.resume_reading()
        await world.until(lambda: protocol.lost)
        assert UNREAD.startswith(bytes(protocol.data))

    with on_ring(False) as peer:
        world.run(body(), 20)
        with pytest.raises(ConnectionResetError):
            read_exactly(peer.tcp, 100)
