"""Calls that take a transport's protocol or its writing away for a while, in every state of pausing.

One table of states, one of calls. Each pair runs on each loop and each path, kernel TCP without us among them. All that
was written comes, in order, and who is told to pause is told to resume, in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from harness.pairs import payload

from conformance.aio.kit import LOOPS, PATHS, Buffered, Contexts, Recorder, World

FILE = payload(700_000, 5)


class Flow(Recorder):
    """Writes down pauses in a log that all protocols of a connection share."""

    flow: list[str]

    def note(self, event: str) -> None:
        if event in ("pause", "resume"):
            self.flow.append(event)
        super().note(event)


class BufferedFlow(Buffered):
    """The same, as a BufferedProtocol."""

    def __init__(self, flow: list[str]) -> None:
        super().__init__()
        self._record = Flow()
        self._record.flow = flow


class Case:
    """A connection whose near end sends."""

    def __init__(self, world: World, near: Flow, far: Recorder) -> None:
        self.world, self.near, self.far = world, near, far
        self.flow = near.flow = []
        self.sent = bytearray()
        self.protocols: list[Any] = [near]

    @property
    def transport(self) -> Any:
        return self.near.transport

    def write(self, size: int) -> None:
        data = payload(size, len(self.sent))
        self.sent += data
        self.transport.write(data)

    async def write_until(self, met: Callable[[], bool]) -> None:
        while not met():
            self.write(65536)
            await asyncio.sleep(0)  # (uvloop writes at the end of the iteration)

    async def send_file(self, file: Any, **more: Any) -> None:
        self.sent += FILE
        assert await self.world.loop.sendfile(self.transport, file, **more) == len(FILE)

    def set_protocol(self, kind: str = "protocol") -> None:
        protocol = BufferedFlow(self.flow) if kind == "buffered" else Flow()
        if isinstance(protocol, Flow):
            protocol.flow = self.flow
        self.transport.set_protocol(protocol)
        self.protocols.append(protocol)


# ---- states ----


async def free(case: Case) -> None:
    """Nothing waits."""


async def paused(case: Case) -> None:
    """The peer does not read, and the protocol was told to pause."""
    case.far.transport.pause_reading()
    await case.write_until(lambda: "pause" in case.flow)


async def paused_at_once(case: Case) -> None:
    """The same, where any byte that waits pauses."""
    case.transport.set_write_buffer_limits(high=0)
    await paused(case)


async def waiting(case: Case) -> None:
    """Bytes wait, and the protocol was not told. New limits make them too many, in some rows."""
    case.transport.set_write_buffer_limits(high=1 << 30)
    case.far.transport.pause_reading()
    await case.write_until(lambda: case.transport.get_write_buffer_size() > 0)


async def resumed(case: Case) -> None:
    """The protocol was told to pause, and to resume."""
    await paused(case)
    case.far.transport.resume_reading()
    await case.world.until(lambda: case.flow == ["pause", "resume"])


async def read_slowly(case: Case) -> None:
    """The peer reads a little at a time."""
    await paused(case)

    def stop(protocol: Any) -> None:
        protocol.transport.pause_reading()
        case.world.loop.call_later(0.002, protocol.transport.resume_reading)

    case.far.on("data", stop)


async def gone_back(case: Case) -> None:
    """The peer has not read for so long that what waited for the ring has gone to the kernel, which is full too."""
    await paused(case)
    await case.world.quiet(0.1)
    await case.write_until(lambda: case.transport.get_write_buffer_size() > 1_000_000)


STATES = [free, paused, paused_at_once, waiting, resumed, read_slowly, gone_back]


# ---- calls ----


async def send_file(case: Case) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(FILE)
        file.flush()
        await case.send_file(file, fallback=False)


async def send_memory(case: Case) -> None:
    """By the fallback."""
    await case.send_file(io.BytesIO(FILE))


async def send_files_and_write(case: Case) -> None:
    for send in (send_file, send_memory, send_file, send_file):
        await send(case)
    case.write(300_000)


async def write_while_a_file_is_sent(case: Case) -> None:
    sending = asyncio.ensure_future(send_file(case))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="in progress"):
        case.transport.write(b"refused")
    await sending


async def cancel_a_file(case: Case) -> None:
    """As far as it went it was sent, and afterwards the transport is as before."""
    before = len(case.sent)
    sending = asyncio.ensure_future(send_file(case))
    await case.world.quiet(0.01)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    case.write(5)
    end = bytes(case.sent[-5:])
    await case.world.until(lambda: case.far.data.endswith(end))
    case.sent[before:] = FILE[: len(case.far.data) - before - 5] + end


async def pause_reading_while_a_file_is_sent(case: Case) -> None:
    case.transport.pause_reading()
    await send_file(case)
    assert not case.transport.is_reading()
    case.transport.resume_reading()


async def change_limits(case: Case) -> None:
    for high in (0, 1 << 30, 1):
        case.transport.set_write_buffer_limits(high=high)
        assert case.flow[-1:] == ["pause"] or not case.transport.get_write_buffer_size() > high


async def change_protocol(case: Case) -> None:
    for kind in ("protocol", "buffered", "protocol", "buffered"):
        case.set_protocol(kind)
        await asyncio.sleep(0)


async def change_protocol_when_told(case: Case) -> None:
    case.near.on("pause", lambda _: case.set_protocol("buffered"))
    case.near.on("resume", lambda _: case.set_protocol("buffered"))
    case.write(300_000)


async def write_when_told(case: Case) -> None:
    case.near.on("pause", lambda _: case.write(3))
    case.near.on("resume", lambda _: case.write(300_000) if case.flow.count("resume") < 4 else None)
    case.write(300_000)


async def send_a_file_when_told(case: Case) -> None:
    sending: list[Any] = []
    case.near.on("resume", lambda _: sending or sending.append(asyncio.ensure_future(send_file(case))))
    case.write(300_000)
    await case.world.until(lambda: sending or not case.transport.get_write_buffer_size())
    await asyncio.gather(*sending)


async def change_limits_when_told(case: Case) -> None:
    limits = case.transport.set_write_buffer_limits
    case.near.on("pause", lambda _: limits(high=1 << 30))
    case.near.on("resume", lambda _: limits(high=0))
    case.write(300_000)


SENDING = [
    send_file, send_memory, send_files_and_write, write_while_a_file_is_sent, cancel_a_file,
    pause_reading_while_a_file_is_sent, send_a_file_when_told,
]  # fmt: skip
CALLS = [*SENDING, change_limits, change_protocol, change_protocol_when_told, write_when_told, change_limits_when_told]


def has(loop_kind: str, path: str, state: Any, call: Any) -> bool:
    """Whether a loop can do that. uvloop has no sendfile, and ours lets the program write meanwhile. asyncio's own
    leaves a transport that does not write any more when it is cancelled behind bytes that wait."""
    if loop_kind == "uvloop":
        return call not in SENDING if path == "kernel" else call is not write_while_a_file_is_sent
    return path != "kernel" or call is not cancel_a_file or state in (free, resumed)


TABLE = [row for row in itertools.product(LOOPS, PATHS, STATES, CALLS) if has(*row)]


async def begin(world: World, state: Any) -> Case:
    near, far = await world.pair(Flow)
    case = Case(world, near, far)
    await state(case)
    return case


async def check(world: World, state: Any, call: Any) -> None:
    case = await begin(world, state)
    far = case.far
    calling = asyncio.ensure_future(call(case))
    if state not in (free, resumed):
        await world.quiet(0.06)
    far.transport.resume_reading()
    await calling
    case.write(7)
    await world.until(lambda: len(far.data) == len(case.sent))
    assert far.data == case.sent
    await world.until(lambda: case.transport.get_write_buffer_size() == 0 and case.flow[-1:] != ["pause"])
    assert case.flow == ["pause", "resume"] * (len(case.flow) // 2)
    assert case.transport.is_reading()
    far.transport.write(b"heard")
    protocol = case.protocols[-1]
    assert case.transport.get_protocol() is protocol
    assert await world.received(protocol, 5) == b"heard"


@pytest.mark.parametrize(("loop_kind", "path", "state", "call"), TABLE)
def test_taken_away_and_given_back(world: World, state: Any, call: Any) -> None:
    world.run(check(world, state, call))
    assert world.problems == []


async def check_the_end(world: World, state: Any, how: str) -> None:
    case = await begin(world, state)
    before = list(case.near.events)
    if how == "write_eof":
        case.far.keep_open = True
        case.transport.write_eof()
        world.loop.call_later(0.06, case.far.transport.resume_reading)
        with pytest.raises((BrokenPipeError, RuntimeError)):  # (uvloop's writes the file)
            await send_file(case)
        assert not case.transport.is_closing()
        return
    sending = asyncio.ensure_future(send_file(case))
    await world.quiet(0.01)
    case.transport.abort()
    with pytest.raises(ConnectionError):
        await sending
    await world.until(lambda: case.near.lost)
    assert case.near.events == [*before, "lost"]


@pytest.mark.parametrize("path", ["ring", "midstream"])  # the kernel's waits for ever when it is aborted
@pytest.mark.parametrize("how", ["abort", "write_eof"])
@pytest.mark.parametrize("state", [paused, gone_back])
def test_the_end_before_a_file_is_sent(world: World, state: Any, how: str) -> None:
    world.run(check_the_end(world, state, how))
    assert world.problems == []


async def check_start_tls(world: World, contexts: Contexts, state: Any) -> None:
    case = await begin(world, state)
    near, far = case.near, case.far
    paused = case.flow[-1:] == ["pause"]
    starting = asyncio.ensure_future(world.loop.start_tls(near.transport, near, contexts[0], server_side=True))
    await world.quiet(0.06)
    far.transport.resume_reading()
    await world.until(lambda: len(far.data) == len(case.sent))
    far.transport = await world.loop.start_tls(far.transport, far, contexts[1], server_hostname="localhost")
    near.transport = await starting
    case.write(700_000)
    await world.until(lambda: len(far.data) == len(case.sent))
    assert far.data == case.sent
    # Both loops' SSL protocols are told to resume, and were not there when it was paused; who was is told no more.
    problems = [(type(problem["protocol"]).__name__, type(problem["exception"])) for problem in world.take_problems()]
    assert problems == [("SSLProtocol", AssertionError)] * paused


@pytest.mark.parametrize("state", STATES)
def test_start_tls(world: World, contexts: Contexts, state: Any) -> None:
    world.run(check_start_tls(world, contexts, state))
