"""A peer that takes its connection back to the kernel (`detach`) while an asyncio transport has the other end."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from typing import Any

import pytest
from pairs import KernelSocket, payload, read_exactly

import fastsock

SECONDS = 20


class Collector(asyncio.Protocol):
    """Keeps what came; echoes it if asked to."""

    def __init__(self, echoes: bool) -> None:
        self.echoes = echoes
        self.received = bytearray()
        self.changed = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()
        if self.echoes:
            self.transport.write(data)

    async def hear(self, count: int) -> None:
        while len(self.received) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), SECONDS)


class BufferedCollector(asyncio.BufferedProtocol):
    """The same with a buffer of its own."""

    __init__ = Collector.__init__
    connection_made = Collector.connection_made
    hear = Collector.hear

    def get_buffer(self, hint: int) -> bytearray:
        self.buffer = bytearray(7000)
        return self.buffer

    def buffer_updated(self, size: int) -> None:
        Collector.data_received(self, bytes(self.buffer[:size]))  # type: ignore[arg-type]


def settle(sock: socket.socket) -> int:
    """Moves the connection to the ring; the bytes it took."""
    limit = time.monotonic() + SECONDS / 2
    for turn in itertools.count(1):
        sock.sendall(b"m")
        read_exactly(sock, 1)
        if fastsock.path_of(sock) == fastsock.Path("ring", "both directions"):
            return turn
        if time.monotonic() > limit:
            break
    pytest.fail(f"not on the ring: {fastsock.path_of(sock)}")


def talk(sock: socket.socket, unread: int, first: bytes, second: bytes) -> tuple[bytes, int]:
    """In a thread: moves, leaves the ring with bytes unread at both ends, goes on raw. What came back; bytes before."""
    sock.settimeout(SECONDS)
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


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("kind", [Collector, BufferedCollector])
@pytest.mark.parametrize("unread", [0, 1, 5000])
@pytest.mark.parametrize("size", [10_000, 300_000])
def test_stream_is_whole_and_in_order(loop: str, kind: type, unread: int, size: int) -> None:
    first, second = payload(size, 1), payload(size, 2)

    async def main() -> None:
        running = asyncio.get_running_loop()
        collector = kind(True)
        server = await running.create_server(lambda: collector, "127.0.0.1", 0)
        sock = fastsock.socket()
        sock.connect(server.sockets[0].getsockname())
        back, before = await asyncio.wait_for(asyncio.to_thread(talk, sock, unread, first, second), SECONDS)
        assert back == first + second
        assert collector.received[before:] == first + second
        server.close()

    with fastsock.configure(move_after=0):
        fastsock.run(main(), loop=loop)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_paused_reader_gets_it_when_it_resumes(loop: str) -> None:
    first, second = payload(20_000, 3), payload(20_000, 4)

    def leave(sock: socket.socket, paused: Any) -> KernelSocket:
        sock.sendall(first)
        raw = KernelSocket(fileno=sock.detach())
        raw.sendall(second)
        return raw

    async def main() -> None:
        running = asyncio.get_running_loop()
        collector = Collector(True)
        server = await running.create_server(lambda: collector, "127.0.0.1", 0)
        sock = fastsock.socket()
        sock.connect(server.sockets[0].getsockname())
        sock.settimeout(SECONDS)
        before = await asyncio.to_thread(settle, sock)
        collector.echoes = False
        collector.transport.pause_reading()
        raw = await asyncio.to_thread(leave, sock, None)
        await asyncio.sleep(0.1)
        assert len(collector.received) == before
        collector.transport.resume_reading()
        await collector.hear(before + len(first + second))
        assert collector.received[before:] == first + second
        raw.close()
        server.close()

    with fastsock.configure(move_after=0):
        fastsock.run(main(), loop=loop)
