"""Works of asyncio programs: echo with the same protocol classes on both paths, as uvloop's own benchmark has them.

One process each for client and server. The order says which loop ("uvloop" or "asyncio"), which API ("protocol",
"buffered", "streams"), how many connections are busy, how many idle ones there are besides, and whether there is TLS.
The server ends when the last connection of a sample has closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Coroutine
from time import perf_counter, process_time
from typing import Any

from bench.certificate import client_context, server_context
from bench.warmup import Address, Order
from bench.worker import BenchError, Report, Role

BEFORE = 60  # round trips of each connection before anything is timed: those on the ring have moved by then
BATCH = 1000  # round trips of all connections, and
LEAST = 20  # round trips of each connection, at least, between two looks at the clock
LINE = b"\n"
ONE_SHOT_REQUEST, ONE_SHOT_REPLY = b"q" * 16, b"a" * 1024


def run(main: Coroutine[Any, Any, Report], eventloop: str) -> Report:
    """What a program does that chooses its loop itself: "asyncio" or "uvloop", and "aiofastnet" or "aiofastnet
    uvloop" with that library's transports."""
    if eventloop.startswith("aiofastnet"):
        main = with_fast_transports(main)
    if eventloop.endswith("uvloop"):
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)


async def with_fast_transports(main: Coroutine[Any, Any, Report]) -> Report:
    import aiofastnet

    aiofastnet.patch_loop()
    return await main


# --- echo protocols -----------------------------------------------------------------------------------------


class Tally:
    """What a server knows of the connections of one sample."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.opened = self.open = self.messages = 0
        self.over = asyncio.get_running_loop().create_future()

    def made(self) -> None:
        self.opened += 1
        self.open += 1

    def lost(self) -> None:
        self.open -= 1
        if not self.open and self.opened >= self.expected and not self.over.done():
            self.over.set_result(None)


class Echo(asyncio.Protocol):
    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def connection_made(self, transport: Any) -> None:
        self.tally.made()
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.tally.messages += 1
        self.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.tally.lost()


class BufferedEcho(asyncio.BufferedProtocol):
    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.buffer = memoryview(bytearray(256 << 10))

    connection_made = Echo.connection_made
    connection_lost = Echo.connection_lost

    def get_buffer(self, hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, size: int) -> None:
        self.tally.messages += 1
        self.write(bytes(self.buffer[:size]))


class Caller(asyncio.Protocol):
    """Sends a message, waits for its echo, `turns` times."""

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.missing = self.turns = 0
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.write = transport.write

    def call(self, turns: int) -> asyncio.Future[None]:
        self.turns, self.missing = turns, len(self.message)
        self.done = asyncio.get_running_loop().create_future()
        self.write(self.message)
        return self.done

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing:
            return
        self.turns -= 1
        if self.turns:
            self.missing = len(self.message)
            self.write(self.message)
        elif self.done is not None:
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error or BenchError("the server closed"))


class BufferedCaller(asyncio.BufferedProtocol):
    def __init__(self, message: bytes) -> None:
        self.buffer = bytearray(256 << 10)
        self.received = b""
        Caller.__init__(self, message)  # type: ignore[arg-type]

    connection_made = Caller.connection_made
    connection_lost = Caller.connection_lost
    call = Caller.call
    data_received = Caller.data_received

    def get_buffer(self, hint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, size: int) -> None:
        self.data_received(self.buffer[:size])


class StreamCaller:
    """The same with streams: a line there, a line back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> None:
        self.reader, self.transport, self.message = reader, writer, message[:-1] + LINE

    async def call(self, turns: int) -> None:
        write, readline, message = self.transport.write, self.reader.readline, self.message
        for _ in range(turns):
            write(message)
            await readline()


# --- one sample ---------------------------------------------------------------------------------------------


def listening(listener: socket.socket) -> socket.socket:
    """The listener, as a loop makes one itself: asyncio sets TCP_NODELAY only where the protocol is named."""
    fd = os.dup(listener.fileno())
    return socket.socket(listener.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)


def serve_echo(listener: socket.socket, order: Order, role: Role) -> Report:
    return run(_serve_echo(listening(listener), order), order["eventloop"])


async def _serve_echo(listener: socket.socket, order: Order) -> Report:
    loop = asyncio.get_running_loop()
    tally = Tally(order["connections"] + order.get("idle", 0))
    context = server_context() if order.get("tls") else None
    if order["api"] == "streams":
        server = await asyncio.start_server(stream_echo(tally), sock=listener, ssl=context)
    else:
        kind = BufferedEcho if order["api"] == "buffered" else Echo
        server = await loop.create_server(lambda: kind(tally), sock=listener, ssl=context, backlog=1024)
    before = process_time()
    await tally.over
    server.close()
    return {"cpu_seconds": process_time() - before, "messages": tally.messages, "path": "ring", "reason": ""}


def stream_echo(tally: Tally) -> Any:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tally.made()
        while line := await reader.readline():
            tally.messages += 1
            writer.write(line)
        writer.close()
        tally.lost()

    return echo


def drive_echo(address: Address, order: Order, role: Role) -> Report:
    return run(_drive_echo(address, order, role), order["eventloop"])


async def connect_all(address: Address, order: Order, count: int, context: ssl.SSLContext | None) -> list[Any]:
    """Callers, each after BEFORE round trips."""
    message, callers = b"m" * order["size"], []
    loop = asyncio.get_running_loop()
    hostname = {"server_hostname": "localhost"} if context is not None else {}
    kind = BufferedCaller if order["api"] == "buffered" else Caller
    for _ in range(count):
        if order["api"] == "streams":
            streams = await asyncio.open_connection(*address, ssl=context, **hostname)
            callers.append(StreamCaller(*streams, message))
        else:
            _, caller = await loop.create_connection(lambda: kind(message), *address, ssl=context, **hostname)
            callers.append(caller)
    for start in range(0, count, 100):
        await asyncio.gather(*(caller.call(BEFORE) for caller in callers[start : start + 100]))
    return callers


async def _drive_echo(address: Address, order: Order, role: Role) -> Report:
    context = client_context() if order.get("tls") else None
    busy = await connect_all(address, order, order["connections"], context)
    await call_for(busy, order["warm"])  # so that they move before the idle ones, which may reach the memory cap
    idle = await connect_all(address, order, order.get("idle", 0), context)
    await call_for(busy, order["warm"])
    cpu = process_time()
    count, elapsed = await call_for(busy, order["seconds"])
    cpu = process_time() - cpu
    paths = [path_of(caller.transport, role) for caller in busy]
    for caller in busy + idle:
        caller.transport.close()
    await asyncio.sleep(0.01)
    return {
        "requests_per_second": count / elapsed,
        "count": count,
        "elapsed": elapsed,
        "cpu_seconds": cpu,
        "checked": len(paths),
        "moved": sum(path["path"] == "ring" for path in paths),
        **paths[-1],
    }


def path_of(transport: Any, role: Role) -> Report:
    """Where a connection of asyncio is: its transport says so."""
    if role.settings is None:
        return {"path": "kernel", "reason": "fastsock is not loaded"}
    path = transport.get_extra_info("fastsock")
    return {"path": path.path, "reason": path.reason}


async def call_for(callers: list[Any], seconds: float) -> tuple[int, float]:
    turns = max(LEAST, BATCH // len(callers))
    count, start = 0, perf_counter()
    while (elapsed := perf_counter() - start) < seconds:
        await asyncio.gather(*(caller.call(turns) for caller in callers))
        count += turns * len(callers)
    return count, elapsed


# --- one-shot connections -----------------------------------------------------------------------------------


class OneShotServer(Echo):
    def data_received(self, data: bytes) -> None:
        if data == LINE:
            self.tally.expected = 0
        self.transport.write(ONE_SHOT_REPLY)
        self.transport.close()

    def connection_made(self, transport: Any) -> None:
        self.tally.made()
        self.transport = transport


def serve_one_shot(listener: socket.socket, order: Order, role: Role) -> Report:
    async def serve() -> Report:
        tally = Tally(1 << 60)
        server = await asyncio.get_running_loop().create_server(lambda: OneShotServer(tally), sock=listening(listener))
        await tally.over
        server.close()
        return {}

    return run(serve(), order["eventloop"])


class OneShotCaller(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self.request, self.size = request, 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.size += len(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set_result(self.size)


def drive_one_shot(address: Address, order: Order, role: Role) -> Report:
    async def one(request: bytes) -> None:
        _, caller = await asyncio.get_running_loop().create_connection(lambda: OneShotCaller(request), *address)
        if await caller.done != len(ONE_SHOT_REPLY):
            raise BenchError(f"a reply of {caller.size} bytes")

    async def drive() -> Report:
        for seconds in (order["warm"], order["seconds"]):
            count, start = 0, perf_counter()
            while (elapsed := perf_counter() - start) < seconds:
                for _ in range(20):
                    await one(ONE_SHOT_REQUEST)
                count += 20
        await one(LINE)
        return {"connections_per_second": count / elapsed, "count": count, "elapsed": elapsed}

    return run(drive(), order["eventloop"])
