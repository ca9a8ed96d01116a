"""usage: trio_echo.py server PORT trio|asyncio | client PORT trio|asyncio CONNECTIONS      (asyncio: by anyio)"""

import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import anyio
import clock
import trio

role, port, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
MESSAGE = b"x" * 64


async def echo_trio(stream: trio.SocketStream) -> None:
    async with stream:
        while data := await stream.receive_some(65536):
            await stream.send_all(data)


async def echo_anyio(stream: Any) -> None:
    async with stream:
        try:
            while True:
                await stream.send(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass


async def serve_anyio() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    await listener.serve(echo_anyio)


async def connect() -> tuple[Callable[[bytes], Awaitable[Any]], Callable[[int], Awaitable[bytes]]]:
    if kind == "trio":
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        return stream.send_all, stream.receive_some
    other = await anyio.connect_tcp("127.0.0.1", port)
    return other.send, other.receive


async def drive(connections: int) -> None:
    ends = [await connect() for _ in range(connections)]

    async def burst(seconds: float) -> tuple[int, float]:
        begin, done = perf_counter(), 0

        async def worker(send: Callable[[bytes], Awaitable[Any]], receive: Callable[[int], Awaitable[bytes]]) -> None:
            nonlocal done
            while perf_counter() - begin < seconds:
                await send(MESSAGE)
                assert len(await receive(64)) == len(MESSAGE)
                done += 1

        async with anyio.create_task_group() as group:
            for end in ends:
                group.start_soon(worker, *end)
        return done, perf_counter() - begin

    await burst(clock.WARM_SECONDS)
    for seconds in clock.slices():
        done, took = await burst(seconds)
        clock.say(operations=done, seconds=took)


try:
    if role == "client":
        anyio.run(drive, int(sys.argv[4]), backend=kind)
    elif kind == "trio":
        trio.run(trio.serve_tcp, echo_trio, port)
    else:
        anyio.run(serve_anyio, backend=kind)
except KeyboardInterrupt:
    pass
