"""Sockets on a loop without a transport, and files."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness.pairs import payload
from harness.processes import running

import fastsock
from conformance.aio.kit import HOST, World, everywhere

Sockets = tuple[socket.socket, socket.socket]


@contextlib.asynccontextmanager
async def sockets(world: World) -> AsyncIterator[Sockets]:
    loop = world.loop
    with world.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((HOST, 0))
        listener.listen()
        listener.setblocking(False)
        near = world.socket(socket.AF_INET, socket.SOCK_STREAM)
        near.setblocking(False)
        accepting = loop.create_task(loop.sock_accept(listener))
        await loop.sock_connect(near, listener.getsockname())
        far, address = await accepting
    assert address == near.getsockname()
    assert type(far) is world.socket
    with near, far:
        yield near, far


async def read_exactly(world: World, sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size and (piece := await world.loop.sock_recv(sock, size - len(received))):
        received += piece
    return bytes(received)


async def check_path(world: World, near: socket.socket, far: socket.socket) -> None:
    if world.path == "kernel":
        return
    while not fastsock.path_of(near).path == fastsock.path_of(far).path == "ring":
        for sender, receiver in ((near, far), (far, near)):
            await world.loop.sock_sendall(sender, b"move")
            assert await read_exactly(world, receiver, 4) == b"move"


@everywhere
async def test_echo(world: World) -> None:
    async with sockets(world) as (near, far):
        for number in range(60):
            data = payload(1 + number * 31, number)
            await world.loop.sock_sendall(near, data)
            assert await read_exactly(world, far, len(data)) == data
            await world.loop.sock_sendall(far, data)
            buffer = bytearray(len(data))
            got = 0
            while got < len(data):
                got += await world.loop.sock_recv_into(near, memoryview(buffer)[got:])
            assert buffer == data
        await check_path(world, near, far)


@everywhere
async def test_a_large_sendall(world: World) -> None:
    async with sockets(world) as (near, far):
        data = payload(6 << 20)
        _, received = await asyncio.gather(world.loop.sock_sendall(near, data), read_exactly(world, far, len(data)))
        assert received == data
        await check_path(world, near, far)
        _, received = await asyncio.gather(world.loop.sock_sendall(far, data), read_exactly(world, near, len(data)))
        assert received == data


@everywhere
async def test_cancelling_a_receive_loses_no_byte(world: World) -> None:
    async with sockets(world) as (near, far):
        data = payload(10_000)
        for number, start in enumerate(range(0, len(data), 50)):
            # (Not while the result is on its way to the task: uvloop loses it then, on the kernel too.)
            task = world.loop.create_task(world.loop.sock_recv(far, 1000))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            near.send(data[start : start + 50])
            assert await read_exactly(world, far, 50) == data[start : start + 50]
        await check_path(world, near, far)


@everywhere
async def test_cancelling_a_sendall_leaves_a_prefix(world: World) -> None:
    async with sockets(world) as (near, far):
        await check_path(world, near, far)
        data = payload(30 << 20)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(world.loop.sock_sendall(near, data), 0.05)
        near.shutdown(socket.SHUT_WR)
        received = await read_exactly(world, far, len(data))
        assert 0 < len(received) < len(data)
        assert received == data[: len(received)]


# ---- files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(payload(1_500_000))
    return path


@pytest.mark.parametrize("loop_kind", ["asyncio"])
@everywhere
async def test_sock_sendfile(world: World, file: Path) -> None:
    async with sockets(world) as (near, far):
        await check_path(world, near, far)
        with file.open("rb") as opened:
            sending = world.loop.create_task(world.loop.sock_sendfile(near, opened, 100, 1_200_000))
            assert await read_exactly(world, far, 1_200_000) == payload(1_500_000)[100:1_200_100]
            assert await sending == 1_200_000
            assert opened.tell() == 1_200_100


@pytest.mark.parametrize("loop_kind", ["asyncio"])
@pytest.mark.parametrize("path", ["ring"])  # the kernel's, with its reader paused, never ends in Python 3.11
@everywhere
async def test_the_peer_goes_while_a_file_is_sent(world: World, file: Path) -> None:
    near, far = await world.pair()
    far.transport.pause_reading()

    def abort(_: Any = None) -> None:
        far.transport.abort()

    world.loop.call_later(0.02, abort)

    async def send_for_ever(opened: Any) -> None:
        while True:
            await world.loop.sendfile(near.transport, opened)

    with file.open("rb") as opened, pytest.raises((ConnectionError, RuntimeError)):
        await send_for_ever(opened)
    await world.until(lambda: near.lost)


SENDS_WHILE_MEETING = """
import asyncio, io
fastsock.patch()
data, before, after = payload(300_000), b"before" * 1000, b"after" * 1000

class Collector(asyncio.Protocol):
    def __init__(self, ended):
        self.data, self.ended = bytearray(), ended
    def data_received(self, data):
        self.data += data
    def connection_lost(self, error):
        self.ended.set_result(error)

async def main():
    loop = asyncio.get_running_loop()
    far = Collector(loop.create_future())
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server = await loop.create_server(lambda: far, sock=listener)
    sock = socket.create_connection(listener.getsockname())
    near, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
    near.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with open(sys.argv[1], "rb") as file:
        near.write(before)
        assert await loop.sendfile(near, file) == len(data)
        near.write(after)
    near.write_eof()
    error = await asyncio.wait_for(far.ended, SECONDS)
    say(f"{error} {len(far.data)} {bytes(far.data) == before + data + after}")

loop = asyncio.SelectorEventLoop()
loop.run_until_complete(main())
"""


def test_the_ends_meet_while_the_kernel_sends_a_file(tmp_path: Path) -> None:
    """The calls of os.sendfile by the loop, which is ours under patch(), are no operations that could move it."""
    path = tmp_path / "file"
    path.write_bytes(payload(300_000))
    with running(SENDS_WHILE_MEETING, path, FASTSOCK_MOVE_AFTER="8") as program:
        assert program.line() == "None 311000 True"
        assert program.wait() == 0


@pytest.mark.parametrize("loop_kind", ["uvloop"])
@pytest.mark.parametrize("path", ["kernel", "ring"])
@everywhere
async def test_uvloop_says_that_it_cannot(world: World, file: Path) -> None:
    near, far = await world.pair()
    with file.open("rb") as opened:
        if world.path == "kernel":
            with pytest.raises(NotImplementedError):
                await world.loop.sendfile(near.transport, opened)
        else:  # what it has not is no loss
            assert await world.loop.sendfile(near.transport, opened) == 1_500_000
            assert await world.received(far, 1_500_000) == payload(1_500_000)
