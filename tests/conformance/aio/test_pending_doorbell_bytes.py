"""A loop's connection that goes back to the kernel while doorbell bytes are owed: they come first.

The loop's own transport writes to the descriptor then, and knows nothing of them. To the peer, which has counted them,
whatever comes first would be those.
"""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
from harness.hostile_peer import BACK, GO_ON, LEFT, Peer, on_ring
from mechanisms.test_side_lock_notifying import choked, count_as_rung, in_kernel, make_room
from mechanisms.test_side_lock_waiting import SENDING, side_of, take_lock
from native.ring import library

import fastsock
from conformance.aio.kit import LOOPS

pytestmark = pytest.mark.usefixtures("bounded")

DATA = b"\xff" * 60_000
"""More than the ring takes without spare parts; no byte of it is a doorbell byte."""


async def within_time(condition: Callable[[], object], what: str) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit, what
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("loop_kind", LOOPS)
@pytest.mark.parametrize("later", [False, True], ids=["backlog", "write"])
def test_owed_bytes_come_before_what_the_loops_transport_writes(loop_kind: str, later: bool) -> None:
    async def body(peer: Peer, raw: socket.socket, side: int) -> None:
        half, loop, rest = 1 - peer.side, asyncio.get_running_loop(), len(DATA)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=peer.victim)
        count_as_rung(peer, 1)
        take_lock(side, SENDING)
        library().side_owes(side, 1, time.monotonic_ns() + 3_600_000_000_000)  # for less than no time: nobody gives up
        library().lock_release(side, SENDING)
        if not later:
            transport.write(DATA)
            rest = transport.get_write_buffer_size()
            assert 0 < rest < len(DATA)
        peer.region.set(half, "ready", LEFT)
        peer.ask()
        await within_time(lambda: peer.region.get(half, "fin") & ~0xFFFFFFFF == BACK, "BACK")
        peer.region.set(half, "settled", GO_ON)
        peer.wake()
        if later:
            transport.write(DATA)
        await asyncio.sleep(0.1)  # (whoever is wrong has handed it down by then)
        before = in_kernel(raw)
        assert library().side_owed(side) == 1
        assert transport.get_write_buffer_size() == rest
        assert transport.lower.get_write_buffer_size() == 0
        make_room(raw)
        await within_time(lambda: in_kernel(raw) == before + 1 + rest, "all is in the kernel")
        assert library().side_owed(side) == 0
        transport.abort()

    with fastsock.configure(_combine_when_full=False), on_ring(False) as peer:
        side = side_of(peer.victim)
        with choked(peer) as raw:
            peer.region.set(1 - peer.side, "doorbell", 0)
            loop = fastsock.new_event_loop(loop_kind)
            try:
                loop.run_until_complete(body(peer, raw, side))
            finally:
                peer.tcp.close()  # (uvloop's close waits for what its transport still has to write)
                loop.close()
