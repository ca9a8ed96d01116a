"""Filters: what is done with the buffers of a unit of work. They know nothing of connections, nor of their copies."""

from __future__ import annotations

import time
from collections.abc import Callable

from streams import ASKED

Write = Callable[[int, "bytes | memoryview"], None]  # number of the block, its bytes


class Filter:
    """`init` at the first buffer of a unit of work, `process` for each buffer, `finalize` behind the last one.

    `nanoseconds` are spent on each byte: busily, or waiting, where a node of its own stands for a processor that this
    machine does not have."""

    def __init__(self, nanoseconds: float, waits: bool) -> None:
        self.seconds_per_byte, self.waits = nanoseconds / 1e9, waits
        self.busy = 0.0

    def init(self, unit: int) -> None:
        """Gets what the unit of work needs."""

    def process(self, number: int, data: memoryview, write: Write) -> None:
        raise NotImplementedError

    def finalize(self) -> None:
        """Gives it back."""

    def compute(self, size: int) -> None:
        seconds = size * self.seconds_per_byte
        if not seconds:
            return
        self.busy += seconds
        until = time.perf_counter() + seconds
        if self.waits and seconds > 200e-6:
            time.sleep(seconds - 100e-6)
        while time.perf_counter() < until:
            pass


class Repository(Filter):
    """The data: makes up the blocks that a query asks for. Byte i of block n is (n + i) modulo 256."""

    pattern = bytes(range(256))

    def init(self, unit: int) -> None:
        self.ramp = b""

    def block(self, number: int, size: int) -> memoryview:
        if len(self.ramp) < size + 256:
            self.ramp = self.pattern * (size // 256 + 2)
        return memoryview(self.ramp)[number % 256 : number % 256 + size]

    def process(self, number: int, data: memoryview, write: Write) -> None:
        size, count, step = ASKED.unpack(data)
        for block in range(number, number + count * step, step):
            self.compute(size)
            write(block, self.block(block, size))


class Transform(Filter):
    """Stands for clipping, zooming and the like: computes, and passes the block on."""

    def process(self, number: int, data: memoryview, write: Write) -> None:
        self.compute(len(data))
        write(number, data)


FILTERS: dict[str, type[Filter]] = {"repository": Repository, "transform": Transform}
