"""Groups of asyncio programs, on both loops."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from harness.pairs import SECONDS

from fastsock import AsyncGroup, Group, new_event_loop

numbers = itertools.count()
Body = Callable[[str], Awaitable[None]]
LOOPS: dict[str, Callable[[], Any]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "fastsock on asyncio": lambda: new_event_loop("asyncio"),
    "fastsock on uvloop": new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    def run(body: Body) -> None:
        loop = LOOPS[request.param]()
        try:
            loop.run_until_complete(asyncio.wait_for(body(f"async {os.getpid()} {next(numbers)}"), 2 * SECONDS))
        finally:
            loop.close()

    return run


def test_readers_that_sleep_are_woken(run: Callable[[Body], None]) -> None:
    async def body(name: str) -> None:
        async with AsyncGroup(name) as a, AsyncGroup(name) as b:

            async def read(group: AsyncGroup) -> list[bytes]:
                return [bytes(await group.receive()) for _ in range(300)]

            readers = [asyncio.create_task(read(group)) for group in (a, b)]
            for i in range(300):
                await asyncio.sleep(0.0002 * (i % 3))
                await a.send(b"%d" % i)
            assert await asyncio.gather(*readers) == [[b"%d" % i for i in range(300)]] * 2
            assert (a.lost, b.lost) == (0, 0)

    run(body)


def test_messages_that_wait_need_no_loop(run: Callable[[Body], None]) -> None:
    async def body(name: str) -> None:
        async with AsyncGroup(name) as group:
            for i in range(100):
                await group.send(b"%d" % i)
            got = [bytes(message) async for message in _first(group, 100)]
            assert got == [b"%d" % i for i in range(100)]

    async def _first(group: AsyncGroup, count: int) -> Any:
        for _ in range(count):
            yield await group.receive()

    run(body)


def test_lent_buffers(run: Callable[[Body], None]) -> None:
    async def body(name: str) -> None:
        async with AsyncGroup(name) as group:
            async with group.lend(5000) as lent:
                memoryview(lent)[:3] = b"abc"
            with pytest.raises(KeyError):
                async with group.lend(5000):
                    raise KeyError
            await group.send(b"end")
            message = await group.receive()
            assert (len(message), bytes(message)[:3]) == (5000, b"abc")
            assert bytes(await group.receive()) == b"end"

    run(body)


def test_a_writer_waits_for_a_slow_reader(run: Callable[[Body], None]) -> None:
    async def body(name: str) -> None:
        async with (
            AsyncGroup(name, slow="block", kept=4) as reader,
            AsyncGroup(name, slow="block", reads=False) as writer,
        ):

            async def write() -> None:
                for i in range(50):
                    async with writer.lend(10) as lent:
                        memoryview(lent)[:2] = b"%02d" % i

            task = asyncio.create_task(write())
            await asyncio.sleep(0.05)
            assert not task.done()
            assert [bytes(await reader.receive())[:2] for _ in range(50)] == [b"%02d" % i for i in range(50)]
            await task

    run(body)


def test_a_cancelled_reader_loses_nothing(run: Callable[[Body], None]) -> None:
    async def body(name: str) -> None:
        async with AsyncGroup(name) as group, AsyncGroup(name) as other:
            first, second = (asyncio.create_task(group.receive()) for _ in range(2))
            await asyncio.sleep(0.01)
            first.cancel()
            await other.send(b"x")
            assert bytes(await second) == b"x"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(group.receive(), 0.02)

    run(body)


def test_close_ends_who_waits(run: Callable[[Body], None]) -> None:
    async def body(name: str) -> None:
        group = AsyncGroup(name)
        task = asyncio.create_task(group.receive())
        await asyncio.sleep(0.01)
        group.close()
        with pytest.raises(ValueError, match="closed"):
            await task
        with Group(name) as other:
            assert other.info()["members"] == 1

    run(body)
