"""What a program does with `transport.get_extra_info("socket")`: options and addresses. The connection stays where it
is."""

from __future__ import annotations

import asyncio
import socket

import pytest

import fastsock

ROUNDS = 400
NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for number in range(ROUNDS):
        writer.write(b"%d\n" % number)
        assert await asyncio.wait_for(reader.readline(), 10) == b"%d\n" % number


async def until_on_the_ring(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """On a busy machine the ends need longer to meet."""
    ends = asyncio.get_running_loop().time() + 10
    while fastsock.path_of(writer).reason != "both directions" and asyncio.get_running_loop().time() < ends:
        await busy(reader, writer)


async def ask(writer: asyncio.StreamWriter) -> None:
    """As a program does that sets options on what it has, be it moved or not."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(*NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert sock.getsockopt(*NODELAY) == 1
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert sock.getpeername() == writer.get_extra_info("peername")
    assert sock.getsockname() == writer.get_extra_info("sockname")
    assert "socket" in repr(sock).lower()


async def use_it(before: fastsock.Stats) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await ask(writer)
    await busy(reader, writer)
    await until_on_the_ring(reader, writer)
    path = fastsock.Path("ring", "both directions")
    assert writer.get_extra_info("fastsock") == path
    await ask(writer)
    assert fastsock.path_of(writer.get_extra_info("socket")) == path
    assert fastsock.path_of(writer) == path
    await busy(reader, writer)
    await ask(writer)
    assert writer.get_extra_info("fastsock") == path
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    after = fastsock.stats()
    assert after.connections_ring == before.connections_ring + 2
    assert after.connections_tcp == before.connections_tcp


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("patched", [False, True])
def test_options_and_addresses(loop: str, patched: bool) -> None:
    if patched:
        fastsock.patch()
    try:
        fastsock.run(use_it(fastsock.stats()), loop=loop)
    finally:
        fastsock.unpatch()


async def give_away() -> None:
    """A socket object that the program connects itself and gives to a loop, as aiohttp's client does."""
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    sock = fastsock.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, server.sockets[0].getsockname())
    reader, writer = await asyncio.open_connection(sock=sock)
    await ask(writer)
    await busy(reader, writer)
    assert sock.fileno() >= 0  # no longer the object's to show: nothing is exposed
    await busy(reader, writer)
    await until_on_the_ring(reader, writer)
    assert fastsock.path_of(writer) == fastsock.Path("ring", "both directions")
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    assert sock.fileno() == -1


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_socket_given_to_the_loop(loop: str) -> None:
    before = fastsock.stats()
    fastsock.run(give_away(), loop=loop)
    after = fastsock.stats()
    assert after.connections_ring == before.connections_ring + 2
    assert after.connections_tcp == before.connections_tcp


def test_path_of_what_is_closed() -> None:
    with socket.socket() as sock, open("/dev/null") as file:
        pass
    for closed in (sock, file):
        assert fastsock.path_of(closed) == fastsock.Path("tcp", "no connection of fastsock's")
