"""A peer that takes its connection back to the kernel (`detach`) while an asyncio transport has the other end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from harness.pairs import SECONDS, KernelSocket, payload, read_exactly, until

import fastsock
from conformance.aio.kit import Buffered, Recorder, World, everywhere

pytestmark = pytest.mark.parametrize("path", ["ring"])


async def meet(world: World, kind: Any = Recorder) -> tuple[Any, socket.socket]:
    """A protocol that echoes all that it keeps, and a socket that is connected to it."""
    protocol, echoed = kind(), 0

    def echo(protocol: Any) -> None:
        nonlocal echoed
        protocol.transport.write(bytes(protocol.data[echoed:]))
        echoed = len(protocol.data)

    protocol.on("data", echo)
    server = await world.server(lambda: protocol)
    sock = fastsock.socket()
    sock.settimeout(SECONDS)
    sock.connect(server.sockets[0].getsockname())
    return protocol, sock


def settle(sock: socket.socket) -> int:
    """Moves the connection to the ring; the bytes it took."""
    iterations = 0

    def moved() -> bool:
        nonlocal iterations
        iterations += 1
        sock.sendall(b"m")
        read_exactly(sock, 1)
        return fastsock.path_of(sock) == fastsock.Path("ring", "both directions")

    until(moved, "it is on the ring")
    return iterations


def talk(sock: socket.socket, unread: int, first: bytes, second: bytes) -> tuple[bytes, int]:
    """In a thread: moves, leaves the ring with bytes unread at both ends, goes on raw. What came back; bytes before."""
    before = settle(sock)
    sock.sendall(first)
    back = read_exactly(sock, len(first) - unread)
    with KernelSocket(fileno=sock.detach()) as raw:
        raw.settimeout(SECONDS)
        raw.sendall(second)
        back += read_exactly(raw, len(first) + len(second) - len(back))
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    return back, before


@pytest.mark.parametrize("kind", [Recorder, lambda: Buffered(7000)], ids=["protocol", "buffered"])
@pytest.mark.parametrize("unread", [0, 1, 5000])
@pytest.mark.parametrize("size", [10_000, 300_000])
@everywhere
async def test_stream_is_whole_and_in_order(world: World, kind: Any, unread: int, size: int) -> None:
    first, second = payload(size, 1), payload(size, 2)
    protocol, sock = await meet(world, kind)
    back, before = await asyncio.to_thread(talk, sock, unread, first, second)
    assert back == first + second
    assert protocol.data[before:] == first + second


@everywhere
async def test_paused_reader_gets_it_when_it_resumes(world: World) -> None:
    first, second = payload(20_000, 3), payload(20_000, 4)
    protocol, sock = await meet(world)
    before = await asyncio.to_thread(settle, sock)
    protocol.hooks.clear()
    protocol.transport.pause_reading()

    def leave() -> None:
        sock.sendall(first)
        with KernelSocket(fileno=sock.detach()) as raw:
            raw.sendall(second)

    await asyncio.to_thread(leave)
    await world.quiet(0.1)
    assert len(protocol.data) == before
    protocol.transport.resume_reading()
    await world.until(lambda: protocol.lost)
    assert protocol.data[before:] == first + second
