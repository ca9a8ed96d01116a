"""What a program sees of a transport beside its methods: attributes, the socket, the order of callbacks, and errors."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from typing import Any
from unittest import mock

import pytest
from harness.pairs import payload

import fastsock
from conformance.aio.kit import HOST, Buffered, Recorder, World, everywhere

STDLIB = pytest.mark.parametrize("loop_kind", ["asyncio"])
STDLIB_ATTRIBUTES = (
    "_sock", "_sock_fd", "_loop", "_closing", "_conn_lost", "_buffer", "_protocol", "_extra", "_eof", "_server",
    "_paused", "_protocol_paused", "_empty_waiter",
)  # fmt: skip


# ---- attributes


@STDLIB
@everywhere
async def test_a_transport_has_the_attributes_of_the_stdlibs(world: World) -> None:
    near, _ = await world.pair()
    transport = near.transport
    missing = [name for name in STDLIB_ATTRIBUTES if not hasattr(transport, name)]
    assert missing == []
    assert transport._loop is world.loop
    assert transport._protocol is near
    assert transport._extra["peername"] == transport.get_extra_info("peername")
    assert not transport._closing
    assert not transport._eof
    transport.mark = 1
    assert vars(transport)["mark"] == 1
    with mock.patch.object(transport, "write") as write:
        transport.write(b"not sent")
    write.assert_called_once_with(b"not sent")
    transport.write_eof()
    assert transport._eof
    transport.close()
    assert transport._closing


# ---- a buffered protocol without a buffer


async def end_of(world: World, far: Any, near: Any) -> tuple[str, str, list[str]]:
    """What both ends are told when a byte comes: (the receiver's error, the sender's, what the loop was told)."""
    near.transport.write(b"a")
    await world.until(lambda: near.lost and far.lost)
    return repr(far.error), repr(near.error), [repr(problem["exception"]) for problem in world.take_problems()]


def failing(_: int) -> bytearray:
    raise ZeroDivisionError


@pytest.mark.parametrize("get_buffer", [failing, lambda _: bytearray(0), lambda _: memoryview(bytearray(0))])
@everywhere
async def test_without_a_buffer_nothing_is_read_and_the_peer_is_reset(world: World, get_buffer: Any) -> None:
    # (uvloop asks once in vain before the end of the stream, or not: so the failure begins when both are at rest.)
    near, far = await world.pair(Recorder, Buffered)
    await world.quiet()
    protocol = world.loop_kind == "uvloop" and "unhandled error (or an empty buffer) in get_buffer()"
    error = RuntimeError(protocol or "get_buffer() returned an empty buffer")
    if get_buffer is failing and world.loop_kind == "asyncio":
        error = ZeroDivisionError()  # type: ignore[assignment]
    far.get_buffer = get_buffer
    # (Methods are looked up when a protocol is set.)
    far.transport.set_protocol(far)
    told = await end_of(world, far, near)
    assert told == (repr(error), repr(ConnectionResetError(104, "Connection reset by peer")), [repr(error)])


# ---- the order of callbacks


@STDLIB
@everywhere
async def test_what_is_ready_comes_before_data_sent_earlier_in_the_iteration(world: World) -> None:
    """As with a selector: data that was written in an iteration of the loop comes behind a task that was made in it."""
    log: list[str] = []
    near, far = await world.pair()
    near.on("data", lambda _: log.append("answer"))
    far.on("data", lambda protocol: (log.append("question"), protocol.transport.write(b"r")))

    async def task() -> None:
        log.append("task")

    for number in range(200):
        log.clear()
        near.transport.write(b"q")
        made = asyncio.ensure_future(task())
        for _ in range(number % 3):
            await asyncio.sleep(0)
        await world.until(lambda: len(log) == 3)
        assert log == ["task", "question", "answer"]
        await made
        if number % 5 == 0:
            await world.quiet(0.002)  # the queue has gone to sleep


# ---- the number of the socket


@everywhere
async def test_data_comes_behind_what_its_receiver_has_left_for_the_loop(world: World) -> None:
    """A protocol that answers and leaves a task: the task runs before the protocol is called again."""
    log: list[str] = []
    near, far = await world.pair()

    def answer(protocol: Any) -> None:
        log.append("data")
        world.loop.call_soon(log.append, "left")
        protocol.transport.write(b"r")

    far.on("data", answer)
    near.on("data", lambda protocol: protocol.transport.write(b"q") if len(log) < 400 else None)
    near.transport.write(b"q")
    await world.until(lambda: len(log) >= 400)
    assert log[:400] == ["data", "left"] * 200


async def echo(world: World, near: Recorder, far: Recorder, size: int) -> None:
    data = payload(size)
    for sender, receiver in ((near, far), (far, near)):
        sender.transport.write(data)
        assert await world.received(receiver, size) == data


@everywhere
async def test_what_is_not_the_number_hands_nothing_out(world: World) -> None:
    near, far = await world.pair()
    sock = near.transport.get_extra_info("socket")
    assert near.transport.get_extra_info("socket") is sock
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert sock.getsockname() == near.transport.get_extra_info("sockname")
    assert "fd=" in repr(sock)
    if world.path != "kernel":
        assert fastsock.path_of(sock) == fastsock.path_of(near.transport)
    await world.check_path(near, far)


@pytest.mark.parametrize("asked", [False, True])
@everywhere
async def test_a_closed_transport_has_the_socket_that_the_loops_has(world: World, asked: bool) -> None:
    near, far = await world.pair()
    sock = near.transport.get_extra_info("socket") if asked else None
    near.transport.abort()
    await world.until(lambda: near.lost and far.lost)
    after = near.transport.get_extra_info("socket")
    if isinstance(world.loop, asyncio.BaseEventLoop):
        assert after.fileno() == -1
    else:
        assert after is sock


@pytest.mark.parametrize("paused", [False, True])
@everywhere
async def test_a_number_is_handed_out_with_all_that_is_under_way(world: World, paused: bool) -> None:
    """On the ring, where the connection stays."""
    near, far = await world.pair()
    if world.path == "midstream":
        await world.move(near, far)
    data = payload(3 << 20)
    if paused:
        near.transport.pause_reading()
    far.transport.write(data)
    far.transport.set_write_buffer_limits(high=1)
    near.transport.write(data[:1000])
    number = near.transport.get_extra_info("socket").fileno()
    sent = os.write(number, b"raw")  # behind what the transport has written
    assert sent == 3
    assert await world.received(far, 1003) == data[:1000] + b"raw"
    if paused:
        await world.quiet()
        assert near.data == b""
        near.transport.resume_reading()
    assert await world.received(near, len(data)) == data
    await echo(world, near, far, 100_000)
    if world.path != "kernel":
        assert near.transport.get_extra_info("fastsock").path == "ring"
    near.transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert near.error is None
    assert far.error is None


# ---- a socket whose class has data calls of its own


def counting(base: type[socket.socket]) -> Any:
    class Counting(base):  # type: ignore[misc,valid-type]
        received = 0
        sent = 0

        def recv(self, *arguments: Any) -> bytes:
            type(self).received += 1
            return bytes(super().recv(*arguments))

        def send(self, *arguments: Any) -> int:
            type(self).sent += 1
            return int(super().send(*arguments))

    return Counting


@pytest.mark.parametrize("moved", [False, True])
@STDLIB
@everywhere
async def test_a_class_with_data_calls_of_its_own_goes_on_being_called(world: World, moved: bool) -> None:
    kind = counting(world.socket)

    def factory() -> Recorder:
        protocol = Recorder()
        protocol.on("data", lambda protocol: protocol.transport.write(b"y"))
        return protocol

    server = await world.server(factory)
    sock = kind()
    sock.setblocking(False)
    await world.loop.sock_connect(sock, (HOST, world.port(server)))
    if moved:
        for number in itertools.count():
            await world.loop.sock_sendall(sock, b"x")
            assert await world.loop.sock_recv(sock, 100) == b"y"
            if number >= 30 and (world.path == "kernel" or fastsock.path_of(sock).path == "ring"):
                break
    _, near = await world.loop.create_connection(Recorder, sock=sock)
    kind.received = kind.sent = 0
    moves, exchanged = world.path != "kernel", 0
    while exchanged < 50 or (moves and not world.on_ring(near)):
        near.transport.write(b"x")
        assert await world.received(near, 1) == b"y"
        exchanged += 1
    assert kind.received >= 50
    if not hasattr(near.transport, "_writelines"):  # (from Python 3.12 on there is sendmsg, for several pieces)
        assert kind.sent >= 50
    near.transport.close()
    await world.until(lambda: near.lost)
