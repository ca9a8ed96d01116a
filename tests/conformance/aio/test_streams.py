"""asyncio streams, which are most programs' way in."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.pairs import payload

import fastsock
from conformance.aio.kit import HOST, World, everywhere

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def streams(world: World, **options: Any) -> tuple[Streams, Streams]:
    """Two connected pairs of reader and writer."""
    accepted: asyncio.Future[Streams] = world.loop.create_future()
    server = await asyncio.start_server(lambda *pair: accepted.set_result(pair), HOST, 0, **options)
    near = await asyncio.open_connection(HOST, world.port(server), **options)
    far = await accepted
    server.close()
    for _, writer in (near, far):
        world._closers.append(writer.transport.abort)
    return near, far


async def on_ring(world: World, near: Streams, far: Streams) -> None:
    """They are on the ring, or soon will be."""
    if world.path == "kernel":
        return
    both = fastsock.Path("ring", "both directions")
    while not fastsock.path_of(near[1]) == fastsock.path_of(far[1]) == both:
        for (_, writer), (reader, _) in ((near, far), (far, near)):
            writer.write(b"move")
            assert await reader.readexactly(4) == b"move"


async def end(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
    for writer in writers:
        await writer.wait_closed()


@everywhere
async def test_a_long_stream_with_a_slow_reader(world: World) -> None:
    """The writer is held up by drain, and its memory by the watermark."""
    near, far = await streams(world, limit=10_000)
    await on_ring(world, near, far)
    data = payload(8 << 20)
    most = 0

    async def write() -> None:
        nonlocal most
        for start in range(0, len(data), 50_000):
            near[1].write(data[start : start + 50_000])
            most = max(most, near[1].transport.get_write_buffer_size())
            await near[1].drain()
        near[1].write_eof()

    async def read() -> bytes:
        received = bytearray()
        while piece := await far[0].read(30_000):
            received += piece
            if len(received) % 7 == 0:
                await asyncio.sleep(0.001)
        return bytes(received)

    _, received = await asyncio.gather(write(), read())
    assert received == data
    assert most < 65536 + 2 * 50_000
    await end(near[1], far[1])
