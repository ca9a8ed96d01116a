"""Messages beside others: `./dev bench messages [--latency] [--group] [--sizes 64,1024,...]`.

Each way sends messages of one size and receives them. Without `--latency` one process does both in turns, so that the
numbers hold on a busy machine too: microseconds of a processor, of all threads, for a message that is sent and taken.
With it two processes send each other one message in turns: microseconds one way. Ways that lend write nothing into the
message and read nothing: they measure the passing on. What is not installed is left out.

With `--group` it measures 1 KiB to 8 readers that all reply, beside IP multicast of the kernel's; what sending costs if
nobody replies; and four writers in one order, beside one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import os
import queue
import signal
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import Barrier, Pipe, Process, Queue, SimpleQueue, shared_memory
from typing import Any

from bench.group import measure as replied
from fastsock import Group

Step = Callable[[], object]
Way = Callable[[str, int], tuple[Step, Step]]
"""Makes an end, by a name and "a" or "b" at its end, for messages of a size: what sends one, and what takes one."""
LONGEST = 5 << 20
HEAD = struct.Struct("II")


def group_lent(name: str, size: int) -> tuple[Step, Step]:
    here, there = _directions(name)
    # Readers have half of the blocks; the end that does not read another's messages would hold its writer.
    out = Group(here, slow="block", reads=False, max_message=LONGEST)
    into = Group(there, slow="block", max_message=LONGEST)

    def send() -> None:
        with out.lend(size):
            pass

    return send, into.receive


def group_copied(name: str, size: int) -> tuple[Step, Step]:
    here, there = _directions(name)
    out = Group(here, slow="block", reads=False, max_message=LONGEST)
    into, data = Group(there, slow="block", max_message=LONGEST), bytes(size)
    return lambda: out.send(data), into.receive


def iceoryx2(name: str, size: int) -> tuple[Step, Step]:
    import iceoryx2 as iox

    iox.set_log_level(iox.LogLevel.Error)
    node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
    here, there = (
        node.service_builder(iox.ServiceName.new(each)).publish_subscribe(iox.Slice[ctypes.c_uint8]).open_or_create()
        for each in _directions(name)
    )
    out = here.publisher_builder().initial_max_slice_len(max(size, 1)).create()
    into = there.subscriber_builder().create()

    def receive() -> None:
        while into.receive() is None:
            os.sched_yield()

    return lambda: out.loan_slice_uninit(size).assume_init().send(), receive


def pyzmq(name: str, size: int) -> tuple[Step, Step]:
    import zmq

    end = zmq.Context().socket(zmq.PAIR)
    path = f"ipc://{tempfile.gettempdir()}/{name[:-2]}".replace(" ", "-")
    end.bind(path) if name.endswith("a") else end.connect(path)
    data = bytes(size)
    return lambda: end.send(data, copy=False), lambda: end.recv(copy=False)


PIPES: dict[str, Any] = {}


def connection(name: str, size: int) -> tuple[Step, Step]:
    a, b = PIPES.setdefault(name[:-2], Pipe())
    end, data = a if name.endswith("a") else b, bytes(size)
    return lambda: end.send_bytes(data), end.recv_bytes


def memory_and_queue(name: str, size: int) -> tuple[Step, Step]:
    if (key := f"{name[:-2]} memory") not in PIPES:
        PIPES[key] = Queue(), Queue(), shared_memory.SharedMemory(create=True, size=max(size, 1))
    made = PIPES[key]
    out, into = made[:2] if name.endswith("a") else made[1::-1]
    memory, data = made[2], bytes(size)

    def send() -> None:
        memory.buf[:size] = data
        out.put(size)

    def receive() -> None:
        with contextlib.suppress(queue.Empty):
            memoryview(memory.buf)[: into.get(timeout=10)].release()

    return send, receive


WAYS: dict[str, Way] = {
    "fastsock.Group, lent": group_lent,
    "fastsock.Group, copied": group_copied,
    "iceoryx2, loaned": iceoryx2,
    "pyzmq ipc, copy=False": pyzmq,
    "multiprocessing.connection": connection,
    "shared_memory and Queue": memory_and_queue,
}


def _directions(name: str) -> tuple[str, str]:
    other = name[:-1] + ("b" if name.endswith("a") else "a")
    return name, other


def cost(way: Way, name: str, size: int, seconds: float) -> float:
    """Processor time of a message, us."""
    sends, _ = way(f"{name} a", size)
    _, takes = way(f"{name} b", size)
    if way is connection and size > 1 << 16:
        return float("nan")  # one thread would wait for itself
    for _ in range(20):
        sends()
        takes()
    found = []
    for _ in range(5):
        began, until, count = time.process_time(), time.monotonic() + seconds / 5, 0
        while time.monotonic() < until:
            for _ in range(20):
                sends()
                takes()
            count += 20
        found.append((time.process_time() - began) / count * 1e6)
    return min(found)


def latency(way: Way, name: str, size: int, seconds: float) -> float:
    """One way, us: the median of rounds of 50 there and back."""
    if way in (connection, memory_and_queue):
        way(f"{name} a", size)  # made before the fork
    ready, tell = os.pipe()
    far = os.fork()
    if not far:
        with contextlib.suppress(BaseException):
            os.close(tell)
            sends, takes = way(f"{name} b", size)
            os.read(ready, 1)  # who is to read this is there
            sends()
            while True:
                takes()
                sends()
        sends = takes = object  # what they have made is put away
        os._exit(0)
    try:
        sends, takes = way(f"{name} a", size)
        os.close(tell)
        takes()
        found, until = [], time.monotonic() + seconds
        while time.monotonic() < until or len(found) < 3:
            began = time.perf_counter()
            for _ in range(50):
                sends()
                takes()
            found.append((time.perf_counter() - began) / 100 * 1e6)
        return statistics.median(found)
    finally:
        os.close(ready)
        os.kill(far, signal.SIGINT)
        os.waitpid(far, 0)


def fan_out(readers: int, size: int, seconds: float) -> tuple[float, float]:
    """Wall and processor time to send a message to so many reading processes, us."""
    name, data, began = f"bench fan {os.getpid()} {size}", bytes(size), 0.0
    group = Group(name, reads=False)
    children = []
    for _ in range(readers):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                group.close()
                for _ in Group(name):
                    pass
            os._exit(0)
        children.append(child)
    try:
        while group.info()["members"] <= readers:
            time.sleep(0.01)
        wall, used = [], []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            cpu, began = time.process_time(), time.perf_counter()
            for _ in range(50):
                group.send(data)
            wall.append((time.perf_counter() - began) / 50 * 1e6)
            used.append((time.process_time() - cpu) / 50 * 1e6)
            time.sleep(0.001)
        return statistics.median(wall), statistics.median(used)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def write(name: str, number: int, size: int, count: int, together: Barrier) -> None:
    data = bytearray(size)
    with Group(name, slow="block", reads=False) as out:
        together.wait()
        for i in range(count):
            HEAD.pack_into(data, 0, number, i)
            out.send(data)


def read(name: str, writers: int, count: int, together: Barrier, told: SimpleQueue[str]) -> None:
    """Checks that each writer's messages come one after the other, and tells the order of all."""
    next_of, order = [0] * writers, hashlib.blake2b()
    with Group(name, slow="block") as into:
        together.wait()
        for _ in range(writers * count):
            with into.receive(10) as message:
                number, i = HEAD.unpack_from(message)
            if i != next_of[number]:
                raise ValueError(f"writer {number}: message {i} instead of {next_of[number]}")
            next_of[number] += 1
            order.update(b"%d " % number)
    told.put(order.hexdigest())


def in_one_order(writers: int, readers: int, size: int, count: int) -> float:
    """Time for a message until all have read it, us. All must have read the same order."""
    name, told = f"bench order {os.getpid()} {writers}", SimpleQueue()
    together = Barrier(writers + readers + 1, timeout=60)
    with Group(name, slow="block", reads=False):
        ends = [Process(target=write, args=(name, i, size, count, together)) for i in range(writers)]
        ends += [Process(target=read, args=(name, writers, count, together, told)) for _ in range(readers)]
        for end in ends:
            end.start()
        together.wait()
        began = time.perf_counter()
        for end in ends:
            end.join()
        took = time.perf_counter() - began
    if any(end.exitcode for end in ends) or len({told.get() for _ in range(readers)}) != 1:
        raise ValueError("the readers have not read the same")
    return took / (writers * count) * 1e6


def rows(sizes: list[int], measure: Callable[[Way, str, int, float], float], seconds: float) -> Iterator[str]:
    yield f"{'us':28}" + "".join(f"{size:>12,}" for size in sizes)
    for what, way in WAYS.items():
        cells = []
        for size in sizes:
            try:
                cells.append(f"{measure(way, f'bench {os.getpid()} {way.__name__} {size}', size, seconds):12.2f}")
            except ImportError:
                cells.append(f"{'-':>12}")
        yield f"{what:28}" + "".join(cells)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.messages", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--latency", action="store_true", help="two processes in turns, instead of the cost in one")
    options.add_argument("--sizes", default="64,1024,65536,4194304", help="bytes of a message, by commas")
    options.add_argument("--seconds", type=float, default=1.0, help="for each number")
    options.add_argument("--group", action="store_true", help="eight readers, and four writers in one order")
    given = options.parse_args()
    if given.group:
        print(f"{'1 KiB to 8 readers, us':28}{'to send':>12}{'all replied':>12}")
        for kind, what in (("group", "fastsock.Group"), ("multicast", "kernel IP multicast")):
            found = replied(kind, 8, 1024, given.seconds)
            print(f"{what:28}{found['injection'] * 1e6:12.2f}{found['replies'] * 1e6:12.2f}", flush=True)
        for readers in (1, 8):
            wall, used = fan_out(readers, 1024, given.seconds)
            print(f"1 KiB to {readers} readers, in a row: {wall:.2f} us to send, {used:.2f} us of a processor")
        for writers in (1, 4):
            print(f"1 KiB of {writers} to 2 readers, in one order: {in_one_order(writers, 2, 1024, 20000):.2f} us")
        return
    sizes = [int(size) for size in given.sizes.split(",")]
    for line in rows(sizes, latency if given.latency else cost, given.seconds):
        print(line, flush=True)
    for memory in (made[2] for key, made in PIPES.items() if key.endswith("memory")):
        memory.unlink()


if __name__ == "__main__":
    main()
