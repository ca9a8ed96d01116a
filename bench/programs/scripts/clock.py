"""What every client here has in common: slices of work, started by a line on standard input, reported by one on
standard output. In between the whole program blocks in the reading of the next line.

The standard library only: a program that is measured must be a plain one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from time import perf_counter
from typing import Any

WARM_SECONDS = 0.3
WARM_OPERATIONS = 12

_out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what a library prints must not look like a report


def say(**report: Any) -> None:
    _out.write(json.dumps(report) + "\n")


def slices() -> Iterator[float]:
    """The seconds of each slice to run."""
    say(ready=True)
    for line in sys.stdin:
        yield json.loads(line)["seconds"]


def repeat(operation: Callable[[], object], batch: int = 1) -> None:
    """Runs `operation`, which counts as `batch` operations, one after the other until a slice is over."""
    begin, done = perf_counter(), 0
    while done < WARM_OPERATIONS and perf_counter() - begin < WARM_SECONDS:
        operation()
        done += 1
    for seconds in slices():
        done, begin = 0, perf_counter()
        end = begin + seconds
        while True:
            operation()
            done += batch
            now = perf_counter()
            if now >= end:
                break
        say(operations=done, seconds=now - begin)


async def burst(operations: Sequence[Callable[[], Awaitable[object]]], seconds: float) -> tuple[int, float]:
    """Runs each operation over and over in a task of its own; the number done, and the seconds they took."""
    begin, done = perf_counter(), 0
    end = begin + seconds

    async def worker(operation: Callable[[], Awaitable[object]]) -> None:
        nonlocal done
        while perf_counter() < end:
            await operation()
            done += 1

    await asyncio.gather(*map(worker, operations))
    return done, perf_counter() - begin


async def repeat_tasks(operations: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """`repeat` under asyncio, one task an operation."""
    await burst(operations, WARM_SECONDS)
    for seconds in slices():
        done, took = await burst(operations, seconds)
        say(operations=done, seconds=took)


def run(main: Coroutine[Any, Any, None], loop: str) -> None:
    """`asyncio.run`, on the loop of that name: "asyncio" or "uvloop"."""
    if loop == "uvloop":
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)
