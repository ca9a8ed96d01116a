"""Protocols: both kinds, changing them at any moment, what their exceptions do, and the context they run in."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any

import pytest
from harness.pairs import ON_UNIX_STREAMS, SECONDS, Task, payload, reset

from conformance.aio.kit import HOST, Buffered, Recorder, World, everywhere

KINDS: tuple[Callable[[], Any], ...] = (Recorder, Buffered)
PROTOCOLS = pytest.mark.parametrize("kind", KINDS, ids=["protocol", "buffered"])
CHANGES = pytest.mark.parametrize("to", KINDS, ids=["to-protocol", "to-buffered"])


# ---- buffered protocols --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 100, 65536])
@everywhere
async def test_a_buffer_of_any_size(world: World, size: int) -> None:
    near, far = await world.pair(Recorder, lambda: Buffered(size))
    data = payload(min(size * 300, 300_000))
    near.transport.write(data)
    assert await world.received(far, len(data)) == data
    assert all(type(hint) is int for hint in far.hints)
    await world.check_path(near, far)


# ---- changing protocols --------------------------------------------------------------------------------------


def change(protocol: Any, to: Callable[[], Any]) -> Any:
    """Puts another protocol in the place of `protocol`, on its transport."""
    other = to()
    other.connection_made(protocol.transport)
    protocol.transport.set_protocol(other)
    assert protocol.transport.get_protocol() is other
    return other


@PROTOCOLS
@CHANGES
@everywhere
async def test_changing_the_protocol_in_its_own_callback(world: World, kind: Any, to: Any) -> None:
    """What was already read is the old one's, the rest the new one's: nothing is lost, nothing comes twice."""
    near, far = await world.pair(kind, kind)
    chain = [far]

    def hand_on(protocol: Any) -> None:
        new = change(protocol, (to, kind)[len(chain) % 2])
        new.on("data", hand_on)
        chain.append(new)

    far.on("data", hand_on)
    data = payload(600_000)
    near.transport.write(data)
    await world.until(lambda: sum(len(protocol.data) for protocol in chain) >= len(data))
    assert b"".join(bytes(protocol.data) for protocol in chain) == data
    near.transport.close()
    await world.until(lambda: chain[-1].lost)
    assert not any(protocol.lost for protocol in chain[:-1])


# ---- exceptions in callbacks ---------------------------------------------------------------------------------


def fail(_: Any) -> None:
    raise ZeroDivisionError("on purpose")


def reported_below(world: World) -> bool:
    """On kernel TCP uvloop itself reports of a get_buffer that failed, and names the transport and the protocol that it
    knows."""
    return world.loop_kind == "uvloop" and world.path == "midstream"


def check_report(world: World, protocol: Any, message: str, ours: bool = True) -> None:
    (problem,) = world.take_problems()
    uvloops = f"Fatal error on transport {'UnixTransport' if ON_UNIX_STREAMS else 'TCPTransport'}"
    if world.loop_kind == "uvloop":
        message = uvloops
    assert problem["message"] == message
    assert problem.keys() == {"message", "exception", "transport", "protocol"}
    if message != uvloops or problem["exception"].args == ("on purpose",):
        assert isinstance(problem["exception"], ZeroDivisionError)  # (uvloop makes its own of one in get_buffer)
    if ours:
        assert problem["transport"] is protocol.transport
        assert problem["protocol"] is protocol


@pytest.mark.parametrize(
    ("kind", "event", "callback"),
    [(Recorder, "data", "data_received"), (Buffered, "data", "buffer_updated"), (Buffered, "get", "get_buffer"),
     (Recorder, "eof", "eof_received")],
    ids=["data_received", "buffer_updated", "get_buffer", "eof_received"],
)  # fmt: skip
@everywhere
async def test_an_exception_ends_the_connection(world: World, kind: Any, event: str, callback: str) -> None:
    near, far = await world.pair(kind, kind)
    far.on(event, fail)
    if event == "eof":
        near.transport.write_eof()
    else:
        near.transport.write(b"data")
    await world.until(lambda: far.lost and near.lost)
    message = f"Fatal error: protocol.{callback}() call failed."
    check_report(world, far, message, ours=event != "get" or not reported_below(world))
    assert isinstance(far.error, RuntimeError if event == "get" and world.loop_kind == "uvloop" else ZeroDivisionError)
    if event == "data":
        assert [event for event in far.events if event != "get"] == ["made", "lost"]


@everywhere
async def test_an_exception_in_connection_lost(world: World) -> None:
    near, far = await world.pair()
    far.on("lost", fail)
    near.transport.close()
    await world.until(lambda: far.lost and near.lost)
    await world.quiet(0.001)
    (problem,) = world.take_problems()
    assert isinstance(problem["exception"], ZeroDivisionError)


@everywhere
async def test_an_os_error_ends_the_connection_without_a_report(world: World) -> None:
    def fail_like_the_network(_: Any) -> None:
        raise ConnectionResetError

    near, far = await world.pair()
    far.on("data", fail_like_the_network)
    near.transport.write(b"data")
    await world.until(lambda: far.lost and near.lost)
    assert isinstance(far.error, ConnectionResetError)


@PROTOCOLS
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_loop_that_was_interrupted_can_be_run_again(
    world: World, kind: Callable[[], Any], error: type[BaseException]
) -> None:
    """As a program does that catches it and shuts down in order."""
    if world.loop_kind == "uvloop" and world.path != "ring":
        pytest.skip("uvloop makes it an error of the connection")

    def interrupt(_: Any) -> None:
        raise error

    async def meet() -> Any:
        made: list[Any] = []
        server = await world.server(lambda: made.append(kind()) or made[-1])
        await world.loop.run_in_executor(None, near.connect, (HOST, world.port(server)))
        await world.until(lambda: made and made[0].transport)
        for _ in range(20):
            await ask(made[0])
        while world.path == "ring" and not world.on_ring(*made):
            await ask(made[0])
        return made[0]

    async def ask(far: Any) -> None:
        near.sendall(b"ping")
        assert await world.received(far, 4) == b"ping"
        far.transport.write(b"pong")
        assert await world.loop.run_in_executor(None, near.recv, 100) == b"pong"

    async def shout(far: Any) -> None:
        await ask(far)
        near.sendall(b"ping")
        assert await world.received(far, 4) == b"ping"
        far.on("data", interrupt)
        near.sendall(b"!")  # the connection is still hot
        await asyncio.sleep(SECONDS)

    where.set("outside")
    with world.running() as run, world.socket() as near:
        near.settimeout(SECONDS)
        far = run(meet())
        with pytest.raises(error):
            run(shout(far))
        far.on("data", lambda _: where.set("inside"))
        far.data.clear()
        run(ask(far))
        assert where.get() == "outside"
        far.transport.abort()
    assert world.problems == []


# ---- context -------------------------------------------------------------------------------------------------


@everywhere
async def test_write_eof_succeeds_however_fast_the_peer_answers_with_a_reset(world: World) -> None:
    """On uvloop as well, which shuts down behind its callbacks: the kernel's shutdown fails then, since the peer hears
    of the end in the ring, but what the protocol is told is the reset."""

    def answer(sock: Any) -> bytes:
        said: bytes = sock.recv(1)
        reset(sock)
        return said

    for _ in range(40 if world.loop_kind == "asyncio" else 10):
        protocol = Recorder()
        server = await world.server(lambda protocol=protocol: protocol)
        with world.socket() as sock:
            await world.loop.run_in_executor(None, sock.connect, (HOST, world.port(server)))
            await world.until(lambda protocol=protocol: protocol.transport)
            for _ in range(20 if world.path != "ring" else 1000):
                sock.sendall(b"ping")
                assert await world.received(protocol, 4) == b"ping"
                protocol.transport.write(b"pong")
                assert await world.loop.run_in_executor(None, sock.recv, 100) == b"pong"
                if world.path == "ring" and world.on_ring(protocol):
                    break
            peer = Task(answer, sock)
            assert peer.blocks()
            protocol.transport.write_eof()
            if world.loop_kind == "uvloop":
                peer.join(0.1)  # before the loop goes on, where the peer hears of it in the ring
            assert await world.loop.run_in_executor(None, peer.result) == b""
            await world.until(lambda protocol=protocol: protocol.lost)
            assert type(protocol.error) is ConnectionResetError
        server.close()


where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")


class Noting(Recorder):
    """Writes down the context variable in each callback."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[str]] = {}
        self.tasks: list[Any] = []

    def note(self, event: str) -> None:
        self.seen.setdefault(event, set()).add(where.get())
        super().note(event)

    def got(self) -> None:
        self.seen.setdefault("data", set()).add(where.get())
        if self.pieces < 3:
            self.tasks.append(asyncio.ensure_future(self.look()))
        super().got()

    async def look(self) -> str:
        return where.get()


@everywhere
async def test_callbacks_run_in_the_context_of_the_connection(world: World) -> None:
    where.set("server")
    made: list[Any] = []

    def factory() -> Any:
        made.append(Noting())
        return made[-1]

    server = await world.server(factory)
    near: list[Any] = []
    for name in ("one", "two"):
        where.set(name)
        near.append((await world.loop.create_connection(Noting, HOST, world.port(server)))[1])
    where.set("later")
    await world.until(lambda: len(made) == 2)
    for protocol in near:
        for _ in range(40):
            far = made[near.index(protocol)]
            protocol.transport.write(b"ping")
            await world.received(far, 4)
            far.transport.write(b"pong")
            await world.received(protocol, 4)
        await world.check_path(protocol, far)
    for protocol in made:
        protocol.transport.close()
    await world.until(lambda: all(protocol.lost for protocol in [*near, *made]))
    for protocol, name in zip(near, ("one", "two"), strict=True):
        assert protocol.seen == {"made": {name}, "data": {name}, "eof": {name}, "lost": {name}}
        assert {await task for task in protocol.tasks} == {name}
    for protocol in made:
        assert protocol.seen["data"] == {"server"}
        assert {await task for task in protocol.tasks} == {"server"}


@everywhere
async def test_what_a_callback_sets_does_not_leak_out(world: World) -> None:
    where.set("outside")
    near, far = await world.pair()
    far.on("data", lambda _: where.set("inside"))
    for _ in range(10):
        near.transport.write(b"x")
        await world.received(far, 1)
        assert where.get() == "outside"
        seen: list[str] = []
        world.loop.call_soon(lambda seen=seen: seen.append(where.get()))
        await world.until(lambda seen=seen: seen)
        assert seen == ["outside"]


@everywhere
async def test_the_context_of_a_writer_is_not_the_connections(world: World) -> None:
    """A connection that only writes moves in one of its writes, wherever that is called."""
    where.set("connection")
    near, far = await world.pair(Noting, settle=False)

    async def write() -> None:
        where.set("writer")
        for number in range(40):
            near.transport.write(b"%04d" % number)
            assert await world.received(far, 4) == b"%04d" % number

    await asyncio.create_task(write())
    far.transport.write(b"answer")
    await world.received(near, 6)
    near.transport.close()
    await world.until(lambda: near.lost)
    assert near.seen["data"] == near.seen["lost"] == {"connection"}


# ---- debug mode ----------------------------------------------------------------------------------------------


@everywhere
async def test_debug_mode_has_nothing_to_complain_about(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.loop.set_debug(True)
    world.loop.slow_callback_duration = SECONDS / 2  # (the machine may stand still for a second)
    caplog.set_level(logging.WARNING, "asyncio")
    near, far = await world.pair()
    for _ in range(30):
        near.transport.write(b"ping")
        await world.received(far, 4)
        far.transport.write(b"pong")
        await world.received(near, 4)
    data = payload(1 << 20)
    near.transport.write(data)
    assert await world.received(far, len(data)) == data
    await world.check_path(near, far)
    near.transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
