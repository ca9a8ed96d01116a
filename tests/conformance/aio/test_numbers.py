"""The number of a connection's descriptor: handed out at each step of the way to the ring, and kept by nobody when the
connection has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.pairs import KernelSocket, bind_beside, payload, socket_at
from harness.processes import running
from harness.steps import STEPS

from conformance.aio.kit import HOST, PATHS, Buffered, Recorder, World, everywhere, served

# ---- handed out


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
            # (The kernel's transports say nothing. A connection that will not move has come to its last step.)
            step = STEPS.index(path) if path in STEPS else len(STEPS)
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

    def on_ring(self, near: Side, far: Side) -> bool:
        """Or on the only path that there is."""
        return self.world.path == "kernel" or self.world.on_ring(near.protocol, far.protocol)

    async def exchange(self, near: Side, far: Side, number: int) -> None:
        for sender, receiver in ((near, far), (far, near)):
            for side in (near, far):
                if not side.inside:
                    side.look()
            data = payload(100 + number, number)
            sender.protocol.transport.write(data)
            assert await self.world.received(receiver.protocol, len(data)) == data

    async def walk(self, near: Side, far: Side) -> None:
        """Handed out at both ends, and the connection goes on, on the ring."""
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
        number = 0
        while number < 10 or not self.on_ring(near, far):  # (the time of the test bounds it: on a busy machine the
            await self.exchange(near, far, number % ROUNDS)  # control thread may run a thousand exchanges later)
            number += 1
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
async def test_every_step_is_walked(world: World, below: bool) -> None:
    """The table above has no row that no connection comes to. (Above TLS some steps may be over before the protocol is
    called, and whether one direction moves before the other is chance.)"""
    if world.path == "kernel":
        return
    walk = Walk(world, below, None)
    seen: set[int] = set()
    while not seen >= {1, 2, 5}:  # (the time of the test bounds it)
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


# ---- used


def readable_by_poll(number: int) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def readable_by_epoll(number: int) -> bool:
    with select.epoll() as epoll:
        epoll.register(number, select.EPOLLIN)
        return bool(epoll.poll(0))


READABLE: dict[str, Callable[[int], bool]] = {
    "poll": readable_by_poll,
    "select": lambda number: bool(select.select([number], [], [], 0)[0]),
    "epoll": readable_by_epoll,
}


async def handed_pair(world: World, **options: Any) -> tuple[Any, Any, int]:
    near, far = await world.pair(**options)
    return near, far, near.transport.get_extra_info("socket").fileno()


@everywhere
async def test_calls_on_the_number_see_what_the_transport_would(world: World) -> None:
    near, far, number = await handed_pair(world)
    near.transport.pause_reading()
    for ask in READABLE.values():
        assert not ask(number)
        with pytest.raises(BlockingIOError):
            os.read(number, 10)
        far.transport.write(b"by the number")
        await world.until(lambda ask=ask: ask(number))
        assert os.read(number, 100) == b"by the number"
    near.transport.resume_reading()
    far.transport.write(b"by the transport")
    assert await world.received(near, 16) == b"by the transport"
    far.transport.close()
    near.transport.pause_reading()
    await world.until(lambda: all(ask(number) for ask in READABLE.values()))
    assert os.read(number, 1) == b""


async def written_in_turns(world: World, order: list[bytes]) -> None:
    near, far, number = await handed_pair(world)
    for turn in range(20):
        near.transport.write(b"t%d," % turn)
        os.write(number, b"n%d," % turn)
        await asyncio.sleep(0)
    await world.until(lambda: far.data.count(b",") == 40)
    order.append(bytes(far.data))


def test_writes_of_both_come_in_the_order_of_the_loop_s_own_transport(world: World) -> None:
    order: list[bytes] = []
    for place in (world, World(world.loop_kind, "kernel")):
        place.run(written_in_turns(place, order))
    assert order[0] == order[1]


@everywhere
async def test_what_waits_for_room_is_sent_in_its_order(world: World) -> None:
    """Whether the number was handed out before the bytes were written, or after."""
    data = payload(32 << 20)
    for early in (True, False):
        near, far = await world.pair()
        far.transport.pause_reading()
        if early:
            near.transport.get_extra_info("socket").fileno()
        near.transport.write(data)
        await world.quiet()
        assert near.transport.get_write_buffer_size() > 0
        near.transport.get_extra_info("socket").fileno()
        await world.quiet()
        assert near.transport.get_write_buffer_size() > 0
        near.transport.write(b"after")
        near.transport.write_eof()
        far.transport.resume_reading()
        assert await world.received(far, len(data) + 5) == data + b"after"
        await world.until(lambda far=far: "eof" in far.events)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("end", ["close", "write_eof", "abort", "shutdown"])
@everywhere
async def test_a_connection_whose_number_was_handed_out_ends_as_others(world: World, end: str, sides: int) -> None:
    near, far = await world.pair(far=lambda: Recorder(keep_open=True))
    number, *_ = [protocol.transport.get_extra_info("socket").fileno() for protocol in (near, far)[:sides]]
    near.transport.write(b"last")
    await world.until(lambda: bytes(far.data) == b"last")
    if end == "shutdown":
        sock = KernelSocket(fileno=number)
        sock.shutdown(socket.SHUT_WR)
        sock.detach()
    else:
        getattr(near.transport, end)()
    await world.until(lambda: "eof" in far.events or far.lost)
    if end in ("write_eof", "shutdown"):
        far.transport.write(b"answer")
    far.transport.close()
    await world.until(lambda: near.lost and far.lost)
    if end in ("write_eof", "shutdown"):
        assert bytes(near.data) == b"answer"


@everywhere
async def test_bytes_on_the_ring_when_the_number_is_handed_out_are_received(world: World) -> None:
    """Whether the transport reads or not, and whichever kind its protocol is."""
    for kind in (Recorder, Buffered):
        for paused in (False, True):
            near, far = await world.pair(near=kind)
            if paused:
                near.transport.pause_reading()
            sent = b""
            for number in range(20):
                piece = payload(5000, number)
                far.transport.write(piece)
                sent += piece
                if number == 10:
                    near.transport.get_extra_info("socket").fileno()
            await world.quiet()
            near.transport.resume_reading()
            assert await world.received(near, len(sent)) == sent


SERVER = """
import asyncio, ssl, uvloop
from conformance.aio.kit import UNTOUCHED
loop_kind, path, certificate = sys.argv[1:]
context = None
if certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.left = transport, None
    def data_received(self, data):
        for byte in data:
            if self.left is None:
                self.left = byte
            if self.left == 0:
                self.transport.get_extra_info("socket").fileno()
            self.left -= 1
        self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, ssl=context)
    say(server.sockets[0].getsockname()[1])
    await server.serve_forever()
loop = UNTOUCHED[loop_kind]() if path == "kernel" else fastsock.new_event_loop(loop_kind)
loop.run_until_complete(main())
"""
"""Echoes. A connection's first byte says behind how many bytes its number is handed out."""


@everywhere
async def test_handed_out_at_once_in_two_processes(world: World, tls: Any, certificate: Path) -> None:
    """Both ends leave together, or one while the other is on its way."""
    arguments = world.loop_kind, world.path, certificate if tls else ""
    settings = {"FASTSOCK_MOVE_AFTER": str(PATHS[world.path] or 0)}
    secured = {"ssl": tls[1], "server_hostname": "localhost"} if tls else {}
    with running(SERVER, *arguments, **settings) as program:
        port = int(await world.loop.run_in_executor(None, program.line))
        for at_near in range(16):
            for at_far in {at_near, max(at_near - 1, 0), at_near + 1, 40}:
                near = Recorder()
                await world.loop.create_connection(lambda near=near: near, HOST, port, **secured)
                for number in range(30):
                    if number == at_near:
                        near.transport.get_extra_info("socket").fileno()
                    near.transport.write(bytes([at_far]))
                    assert await world.received(near, 1) == bytes([at_far])
                near.transport.abort()


# ---- behind the end


ENDS: dict[str, Callable[[Recorder, Recorder], None]] = {
    "close": lambda near, far: near.transport.close(),
    "abort": lambda near, far: near.transport.abort(),
    "peer closes": lambda near, far: far.transport.close(),
    "peer aborts": lambda near, far: far.transport.abort(),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "fileno": lambda sock: sock.fileno(),
    "dup": lambda sock: sock.dup(),
    "getsockopt": lambda sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE),
    "setsockopt": lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "getpeername": lambda sock: bool(sock.getpeername()),
    "getsockname": lambda sock: bool(sock.getsockname()),
    "get_inheritable": lambda sock: sock.get_inheritable(),
    "set_inheritable": lambda sock: sock.set_inheritable(True),
    "shutdown": lambda sock: sock.shutdown(socket.SHUT_RDWR),
    "detach": lambda sock: sock.detach(),
    "share": lambda sock: sock.share(1),
    "ends": lambda sock: (sock.family, sock.type, sock.proto),
    "repr": lambda sock: "fd=-1" in repr(sock),
}
"""What the socket that a transport shows can be asked."""


def said(call: Callable[[Any], Any], sock: Any) -> Any:
    try:
        return call(sock)
    except AttributeError:
        return AttributeError  # whose text names the class
    except Exception as error:
        return type(error), error.args


def own_number(transport: Any) -> int:
    """Of the descriptor, which is not handed out by this."""
    return int(getattr(transport, "lower", transport).get_extra_info("socket").fileno())


async def asked_behind_the_end(world: World, end: Any, before: str, answers: dict[str, Any]) -> None:
    near, far = await world.pair()
    sock = near.transport.get_extra_info("socket")
    number = own_number(near.transport)
    if before != "nothing":
        said(CALLS[before], sock)
    end(near, far)
    await world.until(lambda: near.lost)
    await world.quiet()
    with contextlib.ExitStack() as stack:
        other = socket_at(number, KernelSocket, stack)
        other.set_inheritable(False)
        answers |= {name: said(call, sock) for name, call in CALLS.items()}
        assert other.fileno() == number
        assert not other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not other.get_inheritable()


@pytest.mark.parametrize("before", ["nothing", "fileno", "getpeername"])
@pytest.mark.parametrize("end", ENDS)
def test_a_shown_socket_reaches_nothing_behind_the_end(world: World, end: str, before: str) -> None:
    """And says what the loop's own one says."""
    answers: dict[str, Any] = {}
    kernels: dict[str, Any] = {}
    for place, into in ((world, answers), (World(world.loop_kind, "kernel"), kernels)):
        place.run(asked_behind_the_end(place, ENDS[end], before, into))
    assert answers == kernels
    assert answers["fileno"] == -1


@pytest.mark.parametrize("loop_kind", ["uvloop"])
@pytest.mark.parametrize("given", [False, True], ids=["made", "given"])
@everywhere
async def test_no_endpoint_outlives_a_connection_whose_making_was_cancelled(world: World, given: bool) -> None:
    """Behind connection_made uvloop closes the descriptor, and tells the protocol nothing."""
    before = served()
    near, far = Recorder(), Recorder()
    server = await world.server(lambda: far)
    options: dict[str, Any] = {"host": HOST, "port": world.port(server)}
    if given:
        sock = world.socket()
        sock.setblocking(False)
        await world.loop.sock_connect(sock, (HOST, world.port(server)))
        options = {"sock": sock}
    making = asyncio.ensure_future(world.loop.create_connection(lambda: near, **options))

    def made(protocol: Any) -> None:
        protocol.transport.write(b"first")
        making.cancel()

    near.on("made", made)
    with pytest.raises(asyncio.CancelledError):
        await making
    await world.until(lambda: far.lost)
    assert served() <= before
