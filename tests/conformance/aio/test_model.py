"""Random interleavings of what programs do with a transport, against a bytearray."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness.pairs import pattern
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.aio.kit import Buffered, Recorder, World

SIZES = st.one_of(st.integers(0, 64), st.integers(0, 5000), st.integers(0, 300_000))
SIDE = st.sampled_from([0, 1])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), SIDE, SIZES),
        st.tuples(st.just("writelines"), SIDE, SIZES),
        st.tuples(st.just("pause"), SIDE),
        st.tuples(st.just("resume"), SIDE),
        st.tuples(st.just("switch"), SIDE, st.sampled_from([0, 33, 4096])),
        st.tuples(st.just("limits"), SIDE, st.sampled_from([0, 1, 1000, 1 << 20])),
        st.tuples(st.just("eof"), SIDE),
        st.tuples(st.just("iterate"), st.integers(1, 5)),
        st.tuples(st.just("sleep")),
    ),
    max_size=40,
)
STREAM = pattern(16 << 20)


@dataclass
class Side:
    """One end: its protocols, in turn, and what it has written."""

    protocols: list[Any]
    written: int = 0
    eof: bool = False
    paused: bool = False
    seen_while_paused: int = 0
    events: list[str] = field(default_factory=list)

    @property
    def transport(self) -> Any:
        return self.protocols[0].transport

    @property
    def received(self) -> bytes:
        return b"".join(bytes(protocol.data) for protocol in self.protocols)

    def lost(self) -> list[Any]:
        return [protocol for protocol in self.protocols if protocol.lost]


def step(what: str, side: Side, argument: int, lines_fail: bool) -> None:
    transport = side.transport
    if what in ("write", "writelines") and not side.eof:
        data = STREAM[side.written : side.written + argument]
        side.written += len(data)
        if what == "write" or lines_fail:
            transport.write(data)
        else:
            transport.writelines([data[: argument // 3], b"", data[argument // 3 :]])
    elif what == "pause":
        transport.pause_reading()
        side.paused = True
        side.seen_while_paused = len(side.received)
    elif what == "resume":
        transport.resume_reading()
        side.paused = False
    elif what == "switch":
        protocol = Recorder(keep_open=True) if argument == 0 else Buffered(argument, keep_open=True)
        protocol.connection_made(transport)
        side.protocols.append(protocol)
        transport.set_protocol(protocol)
    elif what == "limits":
        transport.set_write_buffer_limits(high=argument)
    elif what == "eof":
        transport.write_eof()
        side.eof = True


async def check(world: World, steps: list[tuple[Any, ...]]) -> None:
    near, far = await world.pair(lambda: Recorder(keep_open=True), lambda: Recorder(keep_open=True))
    sides = [Side([near]), Side([far])]
    for what, *arguments in steps:
        if what == "iterate":
            for _ in range(arguments[0]):
                await asyncio.sleep(0)
        elif what == "sleep":
            await asyncio.sleep(0.001)
        else:
            side = sides[arguments[0]]
            # (The stdlib loop's own writelines fails now and then, from Python 3.12 on.)
            step(what, side, arguments[1] if len(arguments) > 1 else 0, world.path == "kernel")
        for side in sides:
            if side.paused:
                assert len(side.received) == side.seen_while_paused
    for side in sides:
        side.transport.resume_reading()
        side.transport.write_eof()
    for side, other in (sides, sides[::-1]):
        await world.until(lambda side=side: any("eof" in protocol.events for protocol in side.protocols))
        assert side.received == STREAM[: other.written]
        ends = sum(protocol.events.count("eof") for protocol in side.protocols)
        assert ends == 1 or (ends and world.path == "kernel")  # the loops tell it again after pause and resume
        await world.until(lambda side=side: side.transport.get_write_buffer_size() == 0)
    for side in sides:
        side.transport.close()
    await world.until(lambda: all(side.lost() for side in sides))
    for side in sides:
        assert side.lost() == side.protocols[-1:]
        assert side.protocols[-1].error is None
        flow = [event for protocol in side.protocols for event in protocol.events if event in ("pause", "resume")]
        assert flow == ["pause", "resume"] * (len(flow) // 2)


@pytest.mark.parametrize("path", ["kernel", "ring", "midstream"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(steps=STEPS)
def test_any_interleaving(loop_kind: str, path: str, steps: list[tuple[Any, ...]]) -> None:
    world = World(loop_kind, path)
    world.run(check(world, steps))
    assert world.problems == []
