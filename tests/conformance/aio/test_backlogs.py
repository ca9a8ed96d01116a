"""Loops on which both ends have more to send than the ring holds, and read only what their protocols let them."""

from __future__ import annotations

import asyncio
import socket

import pytest
from harness.pairs import SECONDS, KernelSocket, payload, read_exactly

import fastsock
from conformance.aio.kit import HOST, Recorder, World, everywhere

MUCH = 4_000_000
"""Bytes: more than both directions of the ring and the buffers of streams hold, less than TCP's do."""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that reads no more while its answer finds no room."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("path", ["kernel", "ring"])
@everywhere
async def test_a_client_that_sends_all_before_it_reads(world: World) -> None:
    server = await asyncio.start_server(echo, HOST, 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    if world.path != "kernel":
        while fastsock.path_of(writer).path != "ring":
            writer.write(b"move")
            assert await reader.readexactly(4) == b"move"
    for _ in range(2):
        writer.write(payload(MUCH))
        await writer.drain()
        assert await reader.readexactly(MUCH) == payload(MUCH)
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    server.close()


@pytest.mark.parametrize("path", ["kernel", "ring"])
@everywhere
async def test_transports_that_close_with_backlogs(world: World) -> None:
    """Neither reads any more. What they had written comes out all the same, as far as TCP's buffers take it."""
    near, far = await world.pair()
    for end in (near, far):
        end.transport.write(payload(1_500_000))
    for end in (near, far):
        end.transport.close()
    await world.until(lambda: near.lost and far.lost)


class Stops(Recorder):
    """Echoes until it is told to stop. Then it reads a piece at a time, and knows when it may be called."""

    stops = resuming = False

    def got(self) -> None:
        assert not self.resuming, "a protocol is called from within resume_reading()"
        if self.stops:
            self.transport.pause_reading()
        else:
            self.transport.write(bytes(self.data))
            self.data.clear()
        super().got()


@pytest.mark.parametrize("path", ["ring"])
@everywhere
async def test_resume_reading_calls_no_protocol(world: World) -> None:
    """Also where the peer has gone back to the kernel: who stops again from there would not know that it has."""
    accepted: list[Stops] = []
    server = await world.server(lambda: accepted.append(Stops()) or accepted[-1])

    def connect() -> socket.socket:
        sock = fastsock.socket()
        sock.settimeout(SECONDS)
        sock.connect((HOST, world.port(server)))
        while fastsock.path_of(sock) != fastsock.Path("ring", "both directions"):
            sock.sendall(b"move")
            assert read_exactly(sock, 4) == b"move"
        return sock

    sock = await asyncio.to_thread(connect)
    (near,) = accepted
    near.stops = True
    near.transport.pause_reading()

    def leave() -> None:
        sock.sendall(payload(3000))
        with KernelSocket(fileno=sock.detach()) as raw:
            raw.sendall(b"behind")

    await asyncio.to_thread(leave)
    while len(near.data) < 3006:
        await world.quiet()
        near.resuming = True
        near.transport.resume_reading()
        near.resuming = False
    assert bytes(near.data) == payload(3000) + b"behind"
    server.close()
