"""Transports: writing, pausing, watermarks, ending, and what they tell."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import time
from typing import Any

import pytest
from harness.pairs import SECONDS, of_tcp_alone, payload

from conformance.aio.kit import HOST, Recorder, World, everywhere

MIB = 1 << 20


# ---- bytes ---------------------------------------------------------------------------------------------------


@everywhere
async def test_a_written_bytearray_may_change_afterwards(world: World) -> None:
    near, far = await world.pair()
    data = bytearray(payload(3 * MIB))
    expected = bytes(data)
    far.transport.pause_reading()
    near.transport.write(data)
    if world.path != "kernel" or world.loop_kind == "asyncio":  # uvloop keeps a view of what it was given
        data[:] = bytes(len(data))
    far.transport.resume_reading()
    assert await world.received(far, len(expected)) == expected


# ---- pausing reads -------------------------------------------------------------------------------------------


@everywhere
async def test_pausing_from_the_callback(world: World) -> None:
    """One delivery at a time, whatever more there is."""
    near, far = await world.pair()

    def pause(protocol: Any) -> None:
        assert protocol.transport.is_reading()
        protocol.transport.pause_reading()

    far.on("data", pause)
    data = payload(2 * MIB)
    near.transport.write(data)
    pieces = 0
    while len(far.data) < len(data):
        before = far.pieces
        await world.until(lambda before=before: far.pieces > before)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert far.pieces == before + 1
        far.transport.resume_reading()
        pieces += 1
    assert bytes(far.data) == data
    assert pieces > 1


# ---- watermarks ----------------------------------------------------------------------------------------------


async def until_paused(world: World, protocol: Any) -> int:
    """Writes until it is told to pause. Bytes written."""
    piece = payload(65536)
    written = 0
    while "pause" not in protocol.events:
        protocol.transport.write(piece)
        written += len(piece)
        assert written < 64 * MIB
        await asyncio.sleep(0)
    return written


@everywhere
async def test_pause_writing_that_raises_is_reported(world: World) -> None:
    near, far = await world.pair()
    far.transport.pause_reading()

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    near.on("pause", fail)
    near.on("resume", fail)
    written = await until_paused(world, near)
    far.transport.resume_reading()
    assert len(await world.received(far, written)) == written
    await world.until(lambda: "resume" in near.events)
    problems = world.take_problems()
    assert [problem["message"] for problem in problems] == [
        "protocol.pause_writing() failed",
        "protocol.resume_writing() failed",
    ]
    for problem in problems:
        assert problem.keys() == {"message", "exception", "transport", "protocol"}
        assert isinstance(problem["exception"], ZeroDivisionError)
        assert problem["transport"] is near.transport
        assert problem["protocol"] is near


# ---- the end of one direction --------------------------------------------------------------------------------


@everywhere
async def test_an_end_of_stream_that_waits_behind_unsent_bytes(world: World) -> None:
    """What comes in meanwhile does not move it: the end, the kernel's by now, would be a death on the ring."""
    near, far = await world.pair(far=lambda: Recorder(keep_open=True), settle=False)
    far.transport.pause_reading()
    data = payload(20 * MIB)
    near.transport.write(data)
    near.transport.write_eof()
    for _ in range(60):
        far.transport.write(b"answer")
        await world.received(near, 6)
    assert near.transport.get_write_buffer_size()
    near.transport.pause_reading()
    far.transport.write(b"unread")
    far.transport.resume_reading()
    await world.until(lambda: "eof" in far.events or far.lost)
    assert await world.received(far, len(data)) == data
    assert not far.transport.is_closing()
    far.transport.write(b" so far")
    near.transport.resume_reading()
    assert await world.received(near, 13) == b"unread so far"
    far.transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert near.error is far.error is None


@pytest.mark.parametrize("end", ["write_eof", "close"])
@everywhere
async def test_an_end_behind_unread_bytes_waits_for_them(world: World, end: str) -> None:
    near, far = await world.pair()
    far.transport.pause_reading()
    near.transport.write(b"bytes")
    getattr(near.transport, end)()
    if end == "close":
        await world.until(lambda: near.lost)
        if world.path == "ring":
            assert near.transport.get_extra_info("fastsock").path == "ring"
    await world.quiet()
    assert (far.events, far.data, far.transport.is_closing()) == (["made"], b"", False)
    far.transport.resume_reading()
    await world.until(lambda: far.lost)
    assert bytes(far.data) == b"bytes"
    assert far.events == ["made", "eof", "lost"]
    assert far.error is None


# ---- the end -------------------------------------------------------------------------------------------------


@everywhere
async def test_what_is_written_when_a_closing_transport_says_that_there_is_room(world: World) -> None:
    """asyncio's TLS says goodbye there."""
    near, far = await world.pair()
    far.transport.pause_reading()
    near.on("resume", lambda protocol: protocol.transport.write(b"goodbye"))
    written = await until_paused(world, near)
    near.transport.close()
    far.transport.resume_reading()
    await world.until(lambda: near.lost and far.lost)
    assert len(far.data) == written + 7
    assert far.data.endswith(b"goodbye")
    assert near.events == ["made", "pause", "resume", "lost"]


@everywhere
async def test_a_failed_write_closes_at_once(world: World) -> None:
    """A writer that looks at is_closing() to know when to let the loop run must see it."""
    near, far = await world.pair()
    far.transport.abort()
    await world.until(lambda: far.lost)
    limit = time.monotonic() + SECONDS / 2
    while not near.transport.is_closing() and time.monotonic() < limit:
        near.transport.write(b"into the void")
    assert near.transport.is_closing()
    await world.until(lambda: near.lost)


@everywhere
async def test_close_ends_reading(world: World) -> None:
    near, far = await world.pair()

    def close(protocol: Any) -> None:
        protocol.transport.close()

    far.on("data", close)
    near.transport.write(payload(4 * MIB))
    await world.until(lambda: far.lost and near.lost)
    assert far.pieces == 1
    assert far.events == ["made", "lost"]
    assert far.error is None
    assert near.events.count("lost") == 1


@everywhere
async def test_connection_lost_is_never_called_from_within_close(world: World) -> None:
    near, far = await world.pair()
    for protocol, end in ((near, near.transport.close), (far, far.transport.abort)):
        end()
        assert protocol.events == ["made"]
    await world.until(lambda: near.lost and far.lost)


@everywhere
async def test_close_with_unread_bytes_resets_the_peer(world: World) -> None:
    near, far = await world.pair()
    far.transport.pause_reading()
    near.transport.write(b"never read")
    await world.quiet()
    far.transport.close()
    await world.until(lambda: far.lost and near.lost)
    assert far.error is None
    assert isinstance(near.error, ConnectionResetError)
    assert near.error.errno == errno.ECONNRESET
    assert near.events == ["made", "lost"]


@of_tcp_alone
@everywhere
async def test_linger_zero_resets(world: World) -> None:
    near, far = await world.pair()
    sock = near.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.transport.abort()
    await world.until(lambda: far.lost)
    assert isinstance(far.error, ConnectionResetError)
    assert far.events == ["made", "lost"]


# ---- what it tells -------------------------------------------------------------------------------------------


@of_tcp_alone
@everywhere
async def test_extra_info(world: World) -> None:
    near, far = await world.pair()
    assert isinstance(near.transport, asyncio.Transport) == (world.loop_kind == "asyncio")  # as the loop's own is
    for one, other in ((near, far), (far, near)):
        info = one.transport.get_extra_info
        assert info("peername") == other.transport.get_extra_info("sockname")
        assert info("sockname")[0] == HOST
        assert info("nothing") is None
        assert info("nothing", 5) == 5
        sock = info("socket")
        assert sock.family == socket.AF_INET
        assert sock.type == socket.SOCK_STREAM
        assert sock.getsockname() == info("sockname")
        assert sock.getpeername() == info("peername")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert info("sslcontext") is info("ssl_object") is info("cipher") is None
    await world.check_path(near, far)
    assert near.transport.get_extra_info("socket").fileno() >= 0
    name = near.transport.get_extra_info("sockname")
    near.transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert near.transport.get_extra_info("sockname") == name
    assert repr(near.transport)
