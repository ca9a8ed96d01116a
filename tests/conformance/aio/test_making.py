"""Making connections and servers: every way in, its options and its errors."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pytest

from conformance.aio.kit import HOST, Recorder, World, everywhere


async def talk(world: World, near: Any, far: Any, rounds: int = 30) -> None:
    for number in range(rounds):
        near.transport.write(b"%04d" % number)
        assert await world.received(far, 4) == b"%04d" % number
        far.transport.write(b"%04d" % number)
        assert await world.received(near, 4) == b"%04d" % number
    await world.check_path(near, far)


class Acceptor:
    """A protocol factory that keeps what it made."""

    def __init__(self) -> None:
        self.made: list[Recorder] = []

    def __call__(self) -> Recorder:
        self.made.append(Recorder())
        return self.made[-1]


async def accepted(world: World, acceptor: Acceptor, count: int = 1) -> Recorder:
    await world.until(lambda: len(acceptor.made) == count and acceptor.made[-1].transport is not None)
    return acceptor.made[-1]


async def dial(world: World, acceptor: Acceptor, *args: Any, **options: Any) -> Recorder:
    """A connection, tried and ended."""
    transport, near = await world.loop.create_connection(Recorder, *args, **options)
    assert near.transport is transport
    assert near.events == ["made"]
    info = transport.get_extra_info

    def peer() -> Recorder | None:
        for protocol in acceptor.made:
            theirs = protocol.transport.get_extra_info if protocol.transport is not None else {}.get
            if not protocol.lost and theirs("peername") == info("sockname") and theirs("sockname") == info("peername"):
                return protocol
        return None

    far = await world.until(peer)
    await talk(world, near, far)
    transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert near.error is far.error is None
    return near


# ---- create_connection ---------------------------------------------------------------------------------------


@everywhere
async def test_a_socket_that_was_used_before(world: World) -> None:
    """Bytes on both sides of the hand-over arrive in order; the socket may have moved already."""
    acceptor = Acceptor()
    server = await world.server(acceptor)
    sock = world.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    await world.loop.sock_connect(sock, (HOST, world.port(server)))
    far = await accepted(world, acceptor)
    for number in range(20):
        await world.loop.sock_sendall(sock, b"%04d" % number)
        assert await world.received(far, 4) == b"%04d" % number
        far.transport.write(b"%04d" % number)
        assert await world.loop.sock_recv(sock, 4) == b"%04d" % number
    far.transport.write(b"not read yet")
    transport, near = await world.loop.create_connection(Recorder, sock=sock)
    assert await world.received(near, 12) == b"not read yet"
    await talk(world, near, far)
    transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert far.error is None


@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")  # asyncio's socket
@everywhere
async def test_a_factory_that_fails(world: World) -> None:
    def factory() -> Any:
        raise ZeroDivisionError

    acceptor = Acceptor()
    server = await world.server(acceptor)
    with pytest.raises(ZeroDivisionError):
        await world.loop.create_connection(factory, HOST, world.port(server))


@everywhere
async def test_cancelling_a_connection_under_way(world: World) -> None:
    acceptor = Acceptor()
    server = await world.server(acceptor)
    for iterations in range(8):
        made: list[Recorder] = []

        def factory(made: list[Recorder] = made) -> Recorder:
            made.append(Recorder())
            return made[-1]

        task = world.loop.create_task(world.loop.create_connection(factory, HOST, world.port(server)))
        for _ in range(iterations):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            task.result()[0].close()
        for protocol in made:
            if protocol.transport is not None:
                protocol.transport.close()
    await world.quiet()
    for protocol in acceptor.made:
        if protocol.transport is not None:  # (else it is just being made, and hears of its end)
            protocol.transport.close()
    await dial(world, acceptor, HOST, world.port(server))


# ---- create_server -------------------------------------------------------------------------------------------


@everywhere
async def test_wait_closed_waits_for_the_connections(world: World) -> None:
    acceptor = Acceptor()
    server = await world.server(acceptor)
    transport, near = await world.loop.create_connection(Recorder, HOST, world.port(server))
    far = await accepted(world, acceptor)
    await talk(world, near, far)
    server.close()
    waiting = world.loop.create_task(server.wait_closed())
    await world.quiet()
    if sys.version_info >= (3, 12) and world.loop_kind == "asyncio":
        assert not waiting.done()
    await talk(world, near, far)
    transport.close()
    await waiting
    await world.until(lambda: near.lost and far.lost)


# ---- loops ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in Python 3.13")
@pytest.mark.parametrize("loop_kind", ["asyncio"])
@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
@everywhere
async def test_a_server_ends_its_clients(world: World, how: str) -> None:
    acceptor = Acceptor()
    server = await world.server(acceptor)
    near = [(await world.loop.create_connection(Recorder, HOST, world.port(server)))[1] for _ in range(3)]
    await accepted(world, acceptor, 3)
    peers = {protocol.transport.get_extra_info("peername"): protocol for protocol in acceptor.made}
    for protocol in near:
        await talk(world, protocol, peers[protocol.transport.get_extra_info("sockname")])
    for protocol in acceptor.made:
        protocol.transport.write(b"last")
    server.close()
    getattr(server, how)()
    await asyncio.wait_for(server.wait_closed(), 5)
    await world.until(lambda: all(protocol.lost for protocol in [*near, *acceptor.made]))
    if how == "close_clients":
        assert [bytes(protocol.data) for protocol in near] == [b"last"] * 3
    assert {type(protocol.error) for protocol in acceptor.made} == {type(None)}


def test_nothing_deprecated_but_for_the_policy() -> None:
    """A program with warnings as errors may be patched, and run on a loop of ours."""
    program = """if True:
        import asyncio, fastsock, uvloop
        async def main():
            return type(asyncio.get_running_loop()).__module__
        fastsock.patch()
        assert asyncio.run(main()) == "asyncio.unix_events"
        fastsock.unpatch()
        assert fastsock.run(main()) == fastsock.run(main(), loop="asyncio") == "fastsock.aio.loops"
        fastsock.new_event_loop().close()
        exec("from fastsock import *")
    """
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=50)


@pytest.mark.parametrize("move_after", [0, 5])
@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_a_loop_closed_with_connections_open(kind: str, move_after: int, recwarn: pytest.WarningsRecorder) -> None:
    """Nothing of it stays behind, and what programs still call on a transport does no harm."""
    world = World(kind, "ring" if move_after == 0 else "midstream")

    async def main() -> tuple[Recorder, Recorder]:
        near, far = await world.pair()
        await talk(world, near, far)
        far.transport.pause_reading()
        near.transport.write(bytes(1 << 20))
        far.transport.write(b"unread")
        world._closers.clear()
        return near, far

    near, far = world.run(main())
    for protocol in (near, far):
        assert protocol.transport.get_extra_info("fastsock").path == "ring"
        assert protocol.transport.is_closing() in (True, False)
        repr(protocol.transport)
    del near, far, protocol
    world.loop = None
    import gc

    gc.collect()
