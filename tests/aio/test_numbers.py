"""The number of a connection's descriptor: handed out at each step of the way to the ring."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pairs import KernelSocket, bind_beside, payload

import fastsock
from aio.kit import HOST, Recorder, World, everywhere
from fastsock import rendezvous

# ---- handed out


STEPS = (
    fastsock.Path("tcp", rendezvous.Reason.FEW),
    fastsock.Path("tcp", rendezvous.Reason.SEEKING),
    fastsock.Path("tcp", rendezvous.Reason.BACK),  # attached, and nothing has moved
    fastsock.Path("ring", "sending"),
    fastsock.Path("ring", "receiving"),
    fastsock.Path("ring", "both directions"),
)
"""The way to the ring. A connection that is found beyond a step is handed out there."""

WAYS: dict[str, Callable[[Any], Any]] = {"fileno": lambda sock: sock.fileno(), "dup": lambda sock: sock.dup()}
ROUNDS = 100  # within which a connection has come to its last step, or never will


class Side:
    """One end of a connection, whose number is handed out at a step: outside of its protocol's callbacks, or inside."""

    def __init__(self, step: int, way: str, inside: bool) -> None:
        self.step, self.way, self.inside = step, way, inside
        self.seen: set[int] = set()
        self.handed: Any = None
        self.protocol = Recorder()
        for event in ("made", "data") if inside else ():
            self.protocol.on(event, lambda _: self.look())

    def look(self, now: bool = False) -> None:
        if self.handed is None:
            path = self.protocol.transport.get_extra_info("fastsock")
            step = len(STEPS) if path is None else STEPS.index(path)  # (the kernel's transports say nothing)
            self.seen.add(step)
            if now or step >= self.step:
                self.handed = WAYS[self.way](self.protocol.transport.get_extra_info("socket"))

    def end(self) -> None:
        if hasattr(self.handed, "close"):
            self.handed.close()
        self.protocol.transport.abort()


class Walk:
    """Connections from a port below or above the server's, which decides who publishes."""

    def __init__(self, world: World, below: bool, tls: Any) -> None:
        self.world, self.below, self.tls = world, below, tls

    async def connect(self, near: Side, far: Side) -> None:
        """To a server of its own: where sessions are short the next ones would move later."""
        server = await self.world.server(lambda: far.protocol, ssl=self.tls[0] if self.tls else None)
        port = self.world.port(server)
        with KernelSocket() as free:
            bind_beside(free, port, self.below)
            here = free.getsockname()
        secured = {"ssl": self.tls[1], "server_hostname": "localhost"} if self.tls else {}
        await self.world.loop.create_connection(lambda: near.protocol, HOST, port, local_addr=here, **secured)
        await self.world.until(lambda: far.protocol.transport is not None)
        server.close()

    async def exchange(self, near: Side, far: Side, number: int) -> None:
        for sender, receiver in ((near, far), (far, near)):
            for side in (near, far):
                if not side.inside:
                    side.look()
            data = payload(100 + number, number)
            sender.protocol.transport.write(data)
            assert await self.world.received(receiver.protocol, len(data)) == data

    async def walk(self, near: Side, far: Side) -> None:
        """Handed out at both ends, and the connection goes on."""
        await self.connect(near, far)
        for number in range(ROUNDS):
            await self.exchange(near, far, number)
            if near.handed is not None and far.handed is not None:
                break
        near.look(now=True)
        far.look(now=True)
        if not self.tls:
            for sender, receiver in ((near, far), (far, near)):
                number = sender.handed if isinstance(sender.handed, int) else sender.handed.fileno()
                assert os.write(number, b"raw") == 3
                assert await self.world.received(receiver.protocol, 3) == b"raw"
        for number in range(10):
            await self.exchange(near, far, number)
        near.end()
        far.end()
        await self.world.until(lambda: near.protocol.lost and far.protocol.lost)


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, contexts: Any) -> Any:
    return contexts if request.param == "tls" else None


@pytest.mark.parametrize("below", [True, False], ids=["below", "above"])
@pytest.mark.parametrize("way", WAYS)
@everywhere
async def test_handed_out_at_every_step_at_both_ends(world: World, tls: Any, below: bool, way: str) -> None:
    walk = Walk(world, below, tls)
    for at_near in range(len(STEPS)):
        for at_far in range(len(STEPS)):
            for inside in (False, True):
                await walk.walk(Side(at_near, way, inside), Side(at_far, way, inside))


@pytest.mark.parametrize("below", [True, False], ids=["below", "above"])
@everywhere
async def test_every_step_is_walked(world: World, tls: Any, below: bool) -> None:
    """The table above has no row that no connection comes to. (What is seen of the others is a matter of time: above
    TLS the first operations come before the protocol, and both directions may move in one operation.)"""
    if world.path == "kernel":
        return
    walk = Walk(world, below, tls)
    seen: set[int] = set()
    for _ in range(20):
        sides = [Side(len(STEPS), "fileno", inside) for inside in (False, True)]
        await walk.connect(*sides)
        number = 0
        while not world.on_ring(*(side.protocol for side in sides)):
            await walk.exchange(*sides, number)
            number = (number + 1) % ROUNDS
        await walk.exchange(*sides, 0)
        for side in sides:
            seen |= side.seen
            side.end()
    assert seen >= {1, 2, 5}
