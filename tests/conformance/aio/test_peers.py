"""Two processes: every kind of peer, both roles, both directions, half-close, and death."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.aio.kit import Recorder, World, everywhere
from conformance.aio.peers import expected, peer, stream

MIB = 1 << 20
KILLED = pytest.mark.parametrize(("path", "kind"), [("kernel", "same"), ("ring", "same"), ("ring", "blocking")])
"""Who is killed, on which path: an asyncio program on our kind of loop, or a blocking one."""
PATHS = pytest.mark.parametrize("path", ["kernel", "ring"])


def check_whole(protocol: Any, data: bytes) -> None:
    assert len(protocol.data) == len(data)
    assert bytes(protocol.data) == data


def resolve(world: World, kind: str) -> str:
    other = {"uvloop": "asyncio", "asyncio": "uvloop"}
    return {"same": world.loop_kind, "other": other[world.loop_kind]}.get(kind, kind)


@pytest.mark.parametrize(
    ("path", "kind", "role"),
    [
        ("kernel", "same", "connect"), ("ring", "blocking", "connect"), ("ring", "blocking", "accept"),
        ("ring", "same", "accept"), ("ring", "other", "connect"), ("midstream", "blocking", "accept"),
        ("midstream", "same", "connect"),
    ],
)  # fmt: skip
@everywhere
async def test_both_directions_then_half_close(world: World, kind: str, role: str) -> None:
    async with peer(world, resolve(world, kind), role, factory=lambda: Recorder(keep_open=True)) as other:
        near = other.protocol
        if world.path != "midstream":
            await other.settle()
        other.tell("receive", 3 * MIB + 5)
        near.transport.write(stream(3 * MIB + 5))
        assert await other.said() == expected(3 * MIB + 5)
        other.tell("send", 2 * MIB + 7)
        assert await other.said() == "sending"
        await world.until(lambda: len(near.data) >= 2 * MIB + 7)
        check_whole(near, stream(2 * MIB + 7))
        assert await other.said() == "sent"
        near.data.clear()
        await other.settle()
        other.tell("shutdown")
        await world.until(lambda: "eof" in near.events)
        other.tell("receive", MIB)
        near.transport.write(stream(MIB))
        assert await other.said() == expected(MIB)
        other.tell("eof")
        near.transport.write(stream(100))
        near.transport.close()
        assert await other.said() == expected(100)
        other.tell("close")
        assert await other.said() == "closed"
        await world.until(lambda: near.lost)
        assert near.error is None
        assert [event for event in near.events if event in ("made", "eof", "lost")] == ["made", "eof", "lost"]


@PATHS
@everywhere
async def test_a_peer_that_waits_for_room_by_poll(world: World) -> None:
    """While we do not read it sleeps, and so do we: what keeps its POLLOUT away is not read over and over."""
    async with peer(world, "blocking") as other:
        near = other.protocol
        await other.settle()
        near.transport.pause_reading()
        other.tell("offer", 16 * MIB)
        assert await other.said() == "offering"
        await world.quiet(0.3)
        began = time.process_time()
        await world.quiet(0.5)
        assert time.process_time() - began < 0.05
        near.transport.resume_reading()
        await world.until(lambda: len(near.data) == 16 * MIB)
        check_whole(near, stream(16 * MIB))
        assert int(await other.said()) < 1500


@KILLED
@everywhere
async def test_killed_in_the_middle_of_its_large_write(world: World, kind: str) -> None:
    """What it had sent arrives, then the end, once."""
    async with peer(world, resolve(world, kind)) as other:
        near = other.protocol
        await other.settle()
        near.on("data", lambda protocol: protocol.transport.pause_reading())
        other.tell("send", 64 * MIB)
        assert await other.said() == "sending"
        await world.until(lambda: near.data)
        await world.quiet(0.05)
        other.kill()
        await world.quiet(0.05)
        assert not near.lost
        near.hooks.clear()
        near.transport.resume_reading()
        await world.until(lambda: near.lost)
        assert near.events == ["made", "eof", "lost"]
        assert near.error is None
        assert bytes(near.data) == stream(64 * MIB)[: len(near.data)]
        assert 0 < len(near.data) < 64 * MIB


@KILLED
@everywhere
async def test_killed_behind_a_half_close(world: World, kind: str) -> None:
    """Its end of stream was no news; only sending tells of its death."""
    async with peer(world, resolve(world, kind), factory=lambda: Recorder(keep_open=True)) as other:
        near = other.protocol
        await other.settle()
        other.tell("shutdown")
        await world.until(lambda: "eof" in near.events)
        near.transport.write(stream(64 * MIB))
        await world.until(lambda: "pause" in near.events)
        await world.quiet()
        assert not near.lost
        other.kill()
        await world.until(lambda: near.lost)
        assert isinstance(near.error, (ConnectionResetError, BrokenPipeError))
        assert near.events == ["made", "eof", "pause", "lost"]


@KILLED
@pytest.mark.parametrize("doing", ["reading", "paused", "closing"])
@everywhere
async def test_killed_in_the_middle_of_our_large_write(world: World, kind: str, doing: str) -> None:
    """With bytes of ours unread, TCP resets."""
    async with peer(world, resolve(world, kind)) as other:
        near = other.protocol
        await other.settle()
        if doing == "paused":
            near.transport.pause_reading()
        near.transport.write(stream(64 * MIB))
        if doing == "closing":
            near.transport.close()
        await world.until(lambda: "pause" in near.events)
        await world.quiet()
        assert not near.lost
        other.kill()
        await world.until(lambda: near.lost)
        assert isinstance(near.error, (ConnectionResetError, BrokenPipeError))
        assert [event for event in near.events if event not in ("eof", "resume")] == ["made", "pause", "lost"]
        await world.quiet()
        assert near.events.count("lost") == 1
