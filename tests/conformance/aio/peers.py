"""Programs at the other end: blocking or asyncio, with fastsock or without, told line by line what to do."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any

from harness.pairs import SECONDS
from harness.processes import Program, running

from conformance.aio.kit import HOST, Recorder, World

COMMANDS = """
import asyncio, hashlib, uvloop
kind, path, role, port = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
digest = lambda data: f"{len(data)} {hashlib.md5(data).hexdigest()}"
"""

BLOCKING = (
    COMMANDS
    + """
cls = KernelSocket if path == "kernel" else fastsock.socket
if role == "connect":
    sock = cls()
    sock.connect(("127.0.0.1", port))
else:
    listener = listening(cls is not KernelSocket)
    say(listener.getsockname()[1])
    sock = listener.accept()[0]
for line in sys.stdin:
    what, *numbers = line.split()
    number = int(numbers[0]) if numbers else 0
    if what == "echo":
        for _ in range(number):
            sock.sendall(read_exactly(sock, 4))
        say("echoed")
    elif what == "send":
        say("sending")
        sock.sendall(payload(1 << 20) * (number >> 20) + payload(number % (1 << 20)))
        say("sent")
    elif what == "offer":
        say("offering")
        sock.setblocking(False)
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        data = memoryview(payload(1 << 20) * (number >> 20))
        sent = woken = 0
        while sent < number and poll.poll(1000 * SECONDS):
            woken += 1
            try:
                sent += sock.send(data[sent : sent + 65536])
            except BlockingIOError:
                pass
        sock.setblocking(True)
        say(woken if sent == number else f"only {sent} sent")
    elif what == "receive":
        say(digest(read_exactly(sock, number)))
    elif what == "eof":
        say(digest(read_to_eof(sock)))
    elif what == "shutdown":
        sock.shutdown(socket.SHUT_WR)
    elif what == "close":
        sock.close()
        say("closed")
    elif what == "path":
        say(path_of(sock))
"""
)

ASYNCIO = (
    COMMANDS
    + """
async def main():
    if role == "connect":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    else:
        accepted = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda *pair: accepted.set_result(pair), "127.0.0.1", 0)
        say(server.sockets[0].getsockname()[1])
        reader, writer = await accepted
        server.close()
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        what, *numbers = line.split()
        number = int(numbers[0]) if numbers else 0
        if what == "echo":
            for _ in range(number):
                writer.write(await reader.readexactly(4))
            say("echoed")
        elif what == "send":
            say("sending")
            data = payload(1 << 20) * (number >> 20) + payload(number % (1 << 20))
            for start in range(0, len(data), 100_000):
                writer.write(data[start : start + 100_000])
                await writer.drain()
            say("sent")
        elif what == "receive":
            say(digest(await reader.readexactly(number)))
        elif what == "eof":
            say(digest(await reader.read()))
        elif what == "shutdown":
            writer.write_eof()
        elif what == "close":
            writer.close()
            await writer.wait_closed()
            say("closed")
        elif what == "path":
            say(fastsock.path_of(writer).path if path != "kernel" else "tcp")

if path == "kernel":
    loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.SelectorEventLoop()
else:
    loop = fastsock.new_event_loop(kind)
loop.run_until_complete(main())
"""
)

PEERS = {"blocking": BLOCKING, "uvloop": ASYNCIO, "asyncio": ASYNCIO}


def expected(size: int) -> str:
    """What a peer says about `size` bytes of the stream that it sends itself."""
    data = stream(size)
    return f"{len(data)} {hashlib.md5(data).hexdigest()}"


def stream(size: int) -> bytes:
    """What a peer sends when told to send `size` bytes."""
    from harness.pairs import payload

    return payload(1 << 20) * (size >> 20) + payload(size % (1 << 20))


class Peer:
    """A program at the other end of a connection, and our protocol."""

    def __init__(self, world: World, program: Program, protocol: Any) -> None:
        self.world = world
        self.program = program
        self.protocol = protocol
        self.pid = program.pid

    def tell(self, *words: object) -> None:
        assert self.program.process.stdin is not None
        self.program.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.program.process.stdin.flush()

    async def said(self) -> str:
        """The next line that it printed. (It may have printed two at once, so there is no select.)"""
        assert self.program.process.stdout is not None
        line: bytes = await self.world.loop.run_in_executor(None, self.program.process.stdout.readline)
        assert line, "the program has ended"
        return line.decode().rstrip("\n")

    async def echo(self, rounds: int) -> None:
        """Round trips, each of which must come back."""
        self.tell("echo", rounds)
        for number in range(rounds):
            self.protocol.transport.write(b"%04d" % (number % 10000))
            assert await self.world.received(self.protocol, 4) == b"%04d" % (number % 10000)
        assert await self.said() == "echoed"
        self.protocol.forget_pieces()

    async def path(self) -> str:
        self.tell("path")
        return await self.said()

    async def settle(self) -> None:
        """Round trips until both are on the ring, if they can be."""
        if self.world.path == "kernel":
            await self.echo(10)
            return
        limit = time.monotonic() + SECONDS
        while time.monotonic() < limit:
            await self.echo(25)
            if await self.path() == "ring" and self.world.on_ring(self.protocol):
                return
        raise AssertionError(f"still on {self.protocol.transport.get_extra_info('fastsock')}")

    def kill(self) -> None:
        self.program.kill()


@contextlib.asynccontextmanager
async def peer(
    world: World, kind: str, role: str = "connect", path: str | None = None, factory: Any = Recorder
) -> AsyncIterator[Peer]:
    """A connection between a protocol of ours and a program; `role` is the program's."""
    arguments = kind, path or world.path, role
    variables = {"FASTSOCK_MOVE_AFTER": "6"} if world.path == "midstream" else {}
    if role == "connect":
        accepted = world.loop.create_future()

        def accept() -> Any:
            protocol = factory()
            accepted.set_result(protocol)
            return protocol

        server = await world.server(accept)
        with running(PEERS[kind], *arguments, world.port(server), **variables) as program:
            protocol = await accepted
            await world.until(lambda: protocol.transport is not None)
            world._closers.append(lambda: protocol.lost or protocol.transport.abort())
            yield Peer(world, program, protocol)
        return
    with running(PEERS[kind], *arguments, 0, **variables) as program:
        port = int(await world.loop.run_in_executor(None, program.line))
        _, protocol = await world.loop.create_connection(factory, HOST, port)
        world._closers.append(lambda: protocol.lost or protocol.transport.abort())
        yield Peer(world, program, protocol)
