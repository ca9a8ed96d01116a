"""Every method of a transport, with every kind of argument, in every state, also after the end: as the loop's own.

One table of states, one of calls. A pair is tried on a transport of the untouched loop and on ours, in one test: what
the call returns or raises, what the protocol hears, what the peer gets, and what the loop is told have to be the same.
"""

from __future__ import annotations

import array
import asyncio
import functools
import gc
import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from harness.pairs import payload

from conformance.aio.kit import Buffered, Recorder, World

Attempt = Callable[[], Any]
MUCH = payload(5 << 20)
"""More than TCP's buffers hold, and than the ring does without spare parts."""

pytestmark = pytest.mark.usefixtures("without_spare_parts")


# ---- states: what is done to the near end of a connection, and where the call is made in it ----


async def opened(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    return attempt()


async def paused(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.transport.pause_reading()
    return attempt()


async def half_closed(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.transport.write_eof()
    return attempt()


async def half_closed_behind_much(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    far.transport.pause_reading()
    near.transport.write(MUCH)
    near.transport.write_eof()
    return attempt()


async def peer_half_closed(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.keep_open = True
    far.transport.write_eof()
    await world.until(lambda: "eof" in near.events)
    return attempt()


async def closing(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.transport.close()
    return attempt()


async def closing_behind_much(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    far.transport.pause_reading()
    near.transport.write(MUCH)
    near.transport.close()
    return attempt()


async def aborting(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.transport.abort()
    return attempt()


async def closed(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.transport.close()
    await world.until(lambda: near.lost)
    await asyncio.sleep(0)
    return attempt()


async def aborted(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    near.transport.abort()
    await world.until(lambda: near.lost)
    await asyncio.sleep(0)
    return attempt()


async def closed_by_peer(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    far.transport.close()
    await world.until(lambda: near.lost)
    await asyncio.sleep(0)
    return attempt()


async def in_connection_lost(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    outcomes: list[Any] = []
    near.on("lost", lambda _: outcomes.append(attempt()))
    near.transport.close()
    await world.until(lambda: outcomes)
    return outcomes[0]


async def in_eof_received(world: World, near: Any, far: Any, attempt: Attempt) -> Any:
    outcomes: list[Any] = []
    near.on("eof", lambda _: outcomes.append(attempt()))
    far.transport.write_eof()
    await world.until(lambda: outcomes)
    return outcomes[0]


STATES = [
    opened, paused, half_closed, half_closed_behind_much, peer_half_closed, closing, closing_behind_much, aborting,
    closed, aborted, closed_by_peer, in_connection_lost, in_eof_received,
]  # fmt: skip


# ---- calls ----


class Own(bytes):
    """A class of bytes of a program's own."""


def gone() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


DATA: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"bytes",
    "own bytes": lambda: Own(b"own"),
    "bytearray": lambda: bytearray(b"bytearray"),
    "memoryview": lambda: memoryview(b"memoryview"),
    "memoryview of integers": lambda: memoryview(array.array("I", [1, 2])),
    "memoryview with gaps": lambda: memoryview(b"abcdef")[::2],
    "memoryview released": gone,
    "array of bytes": lambda: array.array("B", b"array"),
    "array of integers": lambda: array.array("I", [1, 2]),
    "nothing": lambda: b"",
    "empty bytearray": bytearray,
    "empty memoryview": lambda: memoryview(b""),
    "empty array": lambda: array.array("B"),
    "None": lambda: None,
    "str": lambda: "text",
    "empty str": lambda: "",
    "int": lambda: 5,
    "zero": lambda: 0,
    "list": lambda: [b"x"],
    "empty list": list,
    "object": object,
}
LINES: dict[str, Callable[[], Any]] = {
    **{f"[{name}]": lambda make=make: [make()] for name, make in DATA.items() if name != "memoryview released"},
    "two": lambda: [b"one", bytearray(b"two")],
    "with nothing": lambda: [b"", b"one", b""],
    "tuple": lambda: (b"one", memoryview(b"two")),
    "generator": lambda: (piece for piece in (b"one", b"two")),
    "no pieces": tuple,
    "None": lambda: None,
    "bytes": lambda: b"bytes",
    "str": lambda: "text",
    "int": lambda: 5,
}
LIMITS: list[dict[str, Any]] = [
    {}, {"high": 0}, {"low": 0}, {"high": 1000}, {"low": 1000}, {"high": 1000, "low": 100}, {"high": 10, "low": 20},
    {"high": 10, "low": -1}, {"high": -1}, {"low": -1}, {"high": "1"}, {"low": "1"}, {"high": 1000, "low": None},
    {"high": 1.5}, {"high": float("inf")}, {"high": 1 << 70}, {"high": True}, {"other": 1},
]  # fmt: skip
NAMES: list[tuple[Any, ...]] = [
    ("sockname",), ("nothing",), ("nothing", 5), ("sslcontext",), (5,), ("peername", None, 1), ([],),
]  # fmt: skip


def limits(transport: Any, arguments: dict[str, Any]) -> Any:
    return transport.set_write_buffer_limits(**arguments), transport.get_write_buffer_limits()


def change(transport: Any, protocol: Any) -> Any:
    before = transport.get_protocol()
    result = transport.set_protocol(protocol)
    changed = transport.get_protocol() is protocol
    if before is not None:
        transport.set_protocol(before)
    return result, changed


def twice(name: str) -> Callable[[Any], Any]:
    return lambda transport: (getattr(transport, name)(), getattr(transport, name)())


def then(first: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda transport: (getattr(transport, first)(), call(transport))


def call(name: str, *arguments: Any, **more: Any) -> Callable[[Any], Any]:
    return lambda transport: getattr(transport, name)(*arguments, **more)


PLAIN = (
    "write_eof", "can_write_eof", "get_write_buffer_limits", "pause_reading", "resume_reading", "is_reading",
    "is_closing", "close", "abort",
)  # fmt: skip
CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"write {name}": lambda transport, make=make: transport.write(make()) for name, make in DATA.items()},
    **{f"writelines {name}": lambda transport, make=make: transport.writelines(make()) for name, make in LINES.items()},
    **{f"limits {given}": lambda transport, given=given: limits(transport, given) for given in LIMITS},
    **{f"info {given}": call("get_extra_info", *given) for given in NAMES},
    **{name: call(name) for name in PLAIN},
    **{f"{name} twice": twice(name) for name in PLAIN},
    **{f"{name} with an argument": call(name, None) for name in (*PLAIN, "get_protocol", "get_write_buffer_size")},
    **{f"{name} without": call(name) for name in ("write", "writelines", "set_protocol", "get_extra_info")},
    **{
        f"{first}, {name}": then(first, CALL)
        for first in ("write_eof", "close", "abort", "pause_reading")
        for name, CALL in {
            "write_eof, write": then("write_eof", call("write", b"late")),
            "write": call("write", b"late"), "write str": call("write", "late"), "write None": call("write", None),
            "write nothing": call("write", b""), "writelines": call("writelines", [b"late"]),
            "writelines None": call("writelines", None), "write_eof": call("write_eof"),
            "resume": call("resume_reading"), "limits": call("set_write_buffer_limits"),
            "protocol": lambda transport: transport.get_protocol() is None,
            "size": lambda transport: transport.get_write_buffer_size() > 0, "is_reading": call("is_reading"),
        }.items()
    },
    "set_protocol Protocol": lambda transport: change(transport, Recorder()),
    "set_protocol BufferedProtocol": lambda transport: change(transport, Buffered()),
    "set_protocol object": lambda transport: change(transport, object()),
    "set_protocol None": lambda transport: change(transport, None),
}  # fmt: skip


# ---- the walk ----


def attempt(call: Callable[[Any], Any], near: Any) -> str:
    try:
        result = call(near.transport)
    except Exception as error:
        return type(error).__name__
    return "a name" if isinstance(result, tuple) and result[:1] == ("127.0.0.1",) else repr(result)


async def observe(world: World, state: Callable[..., Awaitable[str]], call: Callable[[Any], Any]) -> tuple[Any, ...]:
    """(what the call returned or raised, what the protocol heard, what the peer got, what the loop was told)"""
    near, far = await world.pair(far=lambda: Recorder(keep_open=True))
    outcome = await state(world, near, far, functools.partial(attempt, call, near))
    if not far.lost:
        far.transport.resume_reading()
    near.transport.close()
    await world.until(lambda: near.lost and (far.lost or "eof" in far.events))
    if not far.lost:
        far.transport.close()
    await world.until(lambda: far.lost)
    world._closers.clear()  # which would keep all that each connection was sent
    told = sorted(type(problem.get("exception")).__name__ for problem in world.take_problems())
    flow = [event for event in near.events if event not in ("pause", "resume")]
    return (
        outcome,
        flow,
        type(near.error).__name__,
        far.data if len(far.data) < 100 else far.data[: len(MUCH)] == MUCH,
        told,
    )


def calls_in(loop_kind: str, state: Any) -> dict[str, Callable[[Any], Any]]:
    left_out = set()
    if loop_kind == "asyncio" and state is closing_behind_much:
        left_out.add("write memoryview with gaps")  # its own buffer refuses it, its socket fails with it
        if sys.version_info >= (3, 12):
            left_out.add("write memoryview of integers")  # its own counts them for bytes and fails, now and then
    if loop_kind == "uvloop" and state in (half_closed_behind_much, closing_behind_much):
        left_out.add("abort, size")  # it counts what an abort threw away until the connection is lost
    if loop_kind == "asyncio" and sys.version_info >= (3, 12):
        left_out |= {name for name in CALLS if "writelines" in name}  # its own fails now and then
    return {name: call for name, call in CALLS.items() if name not in left_out}


async def observe_all(world: World, state: Any) -> dict[str, tuple[Any, ...]]:
    return {name: await observe(world, state, call) for name, call in calls_in(world.loop_kind, state).items()}


@functools.cache
def plain(loop_kind: str, state: Any) -> dict[str, tuple[Any, ...]]:
    world = World(loop_kind, "kernel")
    return world.run(observe_all(world, state), seconds=100)  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", ["ring", "midstream"])
@pytest.mark.parametrize("state", STATES)
def test_as_the_loops_own(world: World, state: Any) -> None:
    expected = plain(world.loop_kind, state)
    seen = world.run(observe_all(world, state), seconds=100)
    assert {name: (expected[name], seen[name]) for name in expected if seen[name] != expected[name]} == {}


# ---- after the loop ----


def after_the_loop(world: World) -> dict[str, str]:
    async def make() -> Recorder:
        near, _ = await world.pair()
        world._closers.clear()
        return near  # type: ignore[no-any-return]

    with warnings.catch_warnings():  # of transports that are not closed, as nobody can
        warnings.simplefilter("ignore", ResourceWarning)
        outcomes = {name: attempt(call, world.run(make())) for name, call in calls_in(world.loop_kind, closed).items()}
        world.loop = None
        world.take_problems()  # whose tracebacks hold transports
        gc.collect()
    return outcomes


@pytest.mark.parametrize("path", ["ring", "midstream"])
def test_after_the_loop_is_closed(world: World) -> None:
    expected, seen = after_the_loop(World(world.loop_kind, "kernel")), after_the_loop(world)
    assert {name: (expected[name], seen[name]) for name in expected if seen[name] != expected[name]} == {}


# ---- what a protocol is ----


def both(base: type) -> Any:
    """A protocol with the methods of both kinds."""
    called: list[str] = []
    methods = {
        "called": called,
        "data_received": lambda self, data: called.append("data_received"),
        "get_buffer": lambda self, hint: bytearray(10),
        "buffer_updated": lambda self, count: called.append("buffer_updated"),
    }
    return type("Both", (base,), methods)()


@pytest.mark.parametrize("path", ["ring", "midstream"])
@pytest.mark.parametrize("base", [object, asyncio.BaseProtocol, asyncio.Protocol, asyncio.BufferedProtocol])
def test_the_kind_of_a_protocol(world: World, base: type) -> None:
    async def kind_on(world: World) -> list[str]:
        near, far = await world.pair()
        protocol = both(base)
        near.transport.set_protocol(protocol)
        far.transport.write(b"x")
        await world.until(lambda: protocol.called)
        near.transport.set_protocol(near)
        return protocol.called  # type: ignore[no-any-return]

    assert world.run(kind_on(world)) == (plain := World(world.loop_kind, "kernel")).run(kind_on(plain))
