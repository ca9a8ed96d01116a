"""Loops and connections that want descriptors when there are few: nothing fails after a connection has consented."""

from __future__ import annotations

from typing import Any

import pytest
from harness.processes import running

import fastsock
from conformance.aio.kit import HOST, Recorder, World, everywhere
from fastsock._native.transport import CompletionQueue

LIMITED = """
import asyncio, resource

def limit(numbers):
    resource.setrlimit(resource.RLIMIT_NOFILE, (numbers, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
"""


BY_SELECT = f"""{LIMITED}
import selectors

limit(8192)

async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for _ in range(100):
        writer.write(b"x" * 300)
        assert await reader.readexactly(300) == b"x" * 300
    say(fastsock.path_of(writer).path)
    writer.close()

fastsock.patch(move_after=0, _meeting_ms=1000)
asyncio.SelectorEventLoop(selectors.SelectSelector()).run_until_complete(main())
"""


def test_a_loop_that_waits_with_select_has_a_queue_at_a_high_limit() -> None:
    """Our share of the numbers begins behind FD_SETSIZE then, which select takes no number from."""
    with running(BY_SELECT) as program:
        assert program.line(40) == "ring"
        assert program.wait() == 0


def refuse_queues(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the loop has no descriptor for a completion queue."""
    add_reader = type(world.loop).add_reader

    def no_reader(self: Any, fd: Any, callback: Any, *arguments: Any) -> Any:
        if isinstance(getattr(callback, "__self__", None), CompletionQueue):
            raise OSError(24, "Too many open files")
        return add_reader(self, fd, callback, *arguments)

    monkeypatch.setattr(type(world.loop), "add_reader", no_reader, raising=False)


@pytest.mark.parametrize("path", ["ring", "midstream"])
@everywhere
async def test_a_queue_without_a_descriptor_keeps_connections_on_the_kernel(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not: closes them, which have consented by then."""
    near, far = await world.pair(settle=False)
    refuse_queues(world, monkeypatch)
    stays = fastsock.Path("tcp", "out of memory or descriptors")
    while stays not in [fastsock.path_of(end.transport) for end in (near, far)]:  # (the other may be about to find out)
        near.transport.write(b"there")
        assert await world.received(far, 5) == b"there"
        far.transport.write(b"back")
        assert await world.received(near, 4) == b"back"
    assert not near.lost
    assert not far.lost
    monkeypatch.undo()
    await world.move(*await world.pair(settle=False))  # the next ones find it whole


@pytest.mark.parametrize("path", ["ring"])
@everywhere
async def test_a_moved_socket_needs_no_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted: list[Recorder] = []

    def factory() -> Recorder:
        protocol = Recorder()
        protocol.on("data", lambda protocol: protocol.transport.write(b"y"))
        accepted.append(protocol)
        return protocol

    server = await world.server(factory)
    sock = fastsock.socket()
    sock.setblocking(False)
    await world.loop.sock_connect(sock, (HOST, world.port(server)))
    while fastsock.path_of(sock).path != "ring":
        await world.loop.sock_sendall(sock, b"x")
        assert await world.loop.sock_recv(sock, 100) == b"y"
    queue = world.loop._fastsock_queue
    del world.loop._fastsock_queue  # as if it were the loop's first connection
    refuse_queues(world, monkeypatch)
    _, near = await world.loop.create_connection(Recorder, sock=sock)
    world.loop._fastsock_queue = queue
    for _ in range(20):
        near.transport.write(b"x")
        assert await world.received(near, 1) == b"y"
    assert near.transport.get_extra_info("fastsock").path == "ring"
    near.transport.close()
    await world.until(lambda: near.lost)
    assert near.error is None
