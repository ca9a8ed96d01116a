"""What connections cost each other and the loop: fairness, timers, idleness, many at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from harness.hostile_peer import holdings
from harness.pairs import payload
from harness.processes import running

from conformance.aio.kit import HOST, Recorder, World, everywhere, served
from fastsock._native.endpoint import Endpoint
from fastsock._native.transport import Transport

MIB = 1 << 20
RING_ONLY = pytest.mark.parametrize("path", ["ring"])


def saturate(near: Recorder, far: Recorder) -> None:
    """A ball that both play from data_received, without an end."""

    def answer(protocol: Any) -> None:
        data = bytes(protocol.data)
        protocol.data.clear()
        protocol.transport.write(data)

    near.on("data", answer)
    far.on("data", answer)
    near.transport.write(b"x" * 64)


@everywhere
async def test_timers_are_on_time_while_a_connection_is_saturated(world: World) -> None:
    near, far = await world.pair()
    saturate(near, far)
    took = []
    while len(took) < 40 or near.pieces <= 500:  # (the time of the test bounds it)
        began = time.thread_time()  # the loop never sleeps, and what other processes do is not its fault
        await asyncio.sleep(0.005)
        took.append(time.thread_time() - began)
    assert sorted(took)[len(took) // 2] < 0.008
    assert near.pieces > 500


@everywhere
async def test_a_transport_that_closes_behind_a_backlog_leaves_the_loop_in_peace(world: World) -> None:
    """Bytes lie unread that it will not deliver any more, and the peer takes none of the backlog."""
    near, far = await world.pair()
    far.transport.pause_reading()
    far.transport.write(b"unread")
    near.transport.write(bytes(16 * MIB))
    near.transport.close()
    await world.quiet()
    assert near.transport.get_write_buffer_size() > 0
    began = time.thread_time()
    await asyncio.sleep(1)
    assert time.thread_time() - began < 0.08
    assert not near.lost
    far.transport.resume_reading()
    await world.until(lambda: near.lost and far.lost)


@everywhere
async def test_a_loop_with_other_work_is_not_starved(world: World) -> None:
    near, far = await world.pair()
    quiet = await world.pair()
    saturate(near, far)
    iterations = 0
    began = time.thread_time()  # as above: what other processes do, or a machine that stands still, is not its fault
    while time.thread_time() - began < 0.2:
        await asyncio.sleep(0)
        iterations += 1
    assert iterations > 100
    pieces = near.pieces
    for _ in range(20):
        quiet[0].transport.write(b"other")
        assert await world.received(quiet[1], 5) == b"other"
    assert near.pieces > pieces


@everywhere
async def test_a_protocol_that_never_reads_blocks_only_its_own_sender(world: World) -> None:
    near, far = await world.pair()
    other = await world.pair()
    far.transport.pause_reading()
    while "pause" not in near.events:
        near.transport.write(payload(30_000))
        await asyncio.sleep(0)
    size = near.transport.get_write_buffer_size()
    assert size <= 65536 + 30_000
    data = payload(4 * MIB)
    for sender, receiver in (other, other[::-1]):
        sender.transport.write(data)
        assert await world.received(receiver, len(data)) == data
    far.transport.write(b"the other way")
    await world.until(lambda: bytes(near.data) == b"the other way")
    assert near.events == ["made", "pause"]
    assert near.transport.get_write_buffer_size() <= size


@everywhere
async def test_an_idle_loop_uses_no_processor(world: World) -> None:
    near, far = await world.pair()
    for _ in range(50):
        near.transport.write(b"ping")
        await world.received(far, 4)
        far.transport.write(b"pong")
        await world.received(near, 4)
    await world.check_path(near, far)  # else the ends look for each other still, on a busy machine
    await asyncio.sleep(0.05)
    for attempt in range(4):  # a thread may have had something to finish
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
        await asyncio.sleep(0.5)
        after, took = resource.getrusage(resource.RUSAGE_SELF), time.process_time() - began
        if attempt == 3 or (took < 0.01 and after.ru_nvcsw - before.ru_nvcsw <= 5):
            break
    assert took < 0.01
    assert after.ru_nvcsw - before.ru_nvcsw <= 5


@RING_ONLY
@everywhere
async def test_a_transport_is_gone_when_nobody_holds_it(world: World) -> None:
    def there() -> set[int]:
        gc.collect()
        return {id(one) for one in gc.get_objects() if isinstance(one, (Transport, Endpoint))}

    before = there()  # (of tests that failed, or whose loops are gone)
    near, far = await world.pair()
    for protocol in (near, far):
        protocol.transport.close()
    ends = [near, far]
    await world.until(lambda: all(end.lost for end in ends))
    world._closers.clear()
    del near, far, protocol
    ends.clear()
    await asyncio.sleep(0)
    assert there() <= before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.timeout(240)
@RING_ONLY
def test_ten_thousand_connections_leave_nothing(world: World) -> None:
    """Half of them on the ring (a quarter of those aborted, some with bytes unread), half one-shots."""

    async def one(number: int, port: int, made: list[Recorder]) -> None:
        _, near = await world.loop.create_connection(Recorder, HOST, port)
        if number % 10 == 0:
            while not (made and world.on_ring(near, made[-1])):
                near.data.clear()
                near.transport.write(b"move")
                await world.until(lambda: len(near.data) >= 4)
        else:
            near.transport.write(b"once")
            await world.until(lambda: near.data)
        if number % 40 == 0:
            near.transport.write(bytes(200_000))
            near.transport.abort()
        else:
            near.transport.close()
        await world.until(lambda: near.lost and made[-1].lost)
        made.clear()

    _, before = holdings()  # (pages of peer processes of other tests may be kept)

    async def main() -> tuple[list[tuple[int, ...]], int]:
        made: list[Recorder] = []

        def factory() -> Recorder:
            made.append(Recorder())
            made[-1].on("data", lambda protocol: protocol.transport.write(bytes(protocol.data)[-4:]))
            return made[-1]

        server = await world.server(factory)
        before = served()
        counts = []
        for number in range(10_000):
            await one(number, world.port(server), made)
            if number % 2500 == 499:
                gc.collect()
                held = holdings()
                for _ in range(20):  # what a connection thread has not given back yet
                    await asyncio.sleep(0.005)
                    held = min(held, holdings())
                counts.append((*held, resident()))
        return counts, len(served() - before)

    counts, endpoints = world.run(main(), seconds=220)
    assert world.problems == []
    assert endpoints == 0
    assert len({descriptors for descriptors, _, _ in counts}) == 1
    assert all(mapped <= before + 2 * 4096 for _, mapped, _ in counts)  # the page of the loop's event set, twice
    assert counts[-1][2] < counts[0][2] + 8 * MIB


# ---- forks and settings, in programs of their own ---------------------------------------------------------------

PROGRAM = """
import asyncio
from conformance.aio.kit import Recorder, World

async def exchange(world, near, far, rounds):
    for number in range(rounds):
        near.transport.write(b"%04d" % number)
        assert await world.received(far, 4) == b"%04d" % number
        far.transport.write(b"%04d" % number)
        assert await world.received(near, 4) == b"%04d" % number

kind = sys.argv[1]
world = World(kind, "ring")
"""

FORKING = (
    PROGRAM
    + """
async def main():
    near, far = await world.pair()
    children = []
    for number in range(10):
        child = os.fork()
        if child == 0:
            os._exit(7)
        children.append(child)
        await exchange(world, near, far, 20)
        assert world.on_ring(near, far)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    await exchange(world, near, far, 20)
    near.transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert near.error is far.error is None

fastsock.patch(move_after=0)
world.run(main())
assert world.problems == []
say("done")
"""
)


@pytest.mark.parametrize("path", ["ring"])
def test_forks_in_a_running_program(world: World) -> None:
    with running(FORKING, world.loop_kind) as program:
        assert program.line() == "done"
        assert program.wait() == 0


EXITING = (
    PROGRAM
    + """
import socket, threading, time
from fastsock._native.libc_front import say_goodbye

def call(port):
    with socket.create_connection(("127.0.0.1", port)) as sock:
        settled = 0
        while settled < 100:
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
            settled += fastsock.path_of(sock).path == "ring"
        say("ring")
        if sys.argv[2] == "after leaving":
            sock.sendall(b"l")
            assert sock.recv(1) == b"l"
        sock.sendall(b"x")  # the loop looks at the region, perhaps without the GIL,
        if sys.argv[2] != "at once":
            say_goodbye()
            time.sleep(0.02)  # for sure after the goodbye
        os._exit(7)

async def main():
    def answer(protocol):
        if protocol.data == b"l":  # its region is no other connection's afterwards
            protocol.transport.get_extra_info("socket").fileno()
        protocol.transport.write(bytes(protocol.data))
        protocol.data.clear()

    def factory():
        protocol = Recorder(world)
        protocol.on("data", answer)
        return protocol

    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    threading.Thread(target=call, args=server.sockets[0].getsockname()[1:]).start()
    await asyncio.sleep(60)

fastsock.patch(move_after=0)
world.run(main())
"""
)


@pytest.mark.parametrize("how", ["at once", "slowly", "after leaving"])
@pytest.mark.parametrize("path", ["ring"])
def test_a_thread_ends_the_process_while_the_loop_polls(world: World, how: str) -> None:
    for _ in range(4):
        with running(EXITING, world.loop_kind, how) as program:
            assert program.line() == "ring"
            assert program.wait() == 7


CLOSED_BEHIND = (
    PROGRAM
    + """
import socket

async def main():
    near, far = await world.pair()
    await exchange(world, near, far, 50)
    assert world.on_ring(near, far)
    fd = near.transport.lower.get_extra_info("socket").fileno()  # (asking ours would take the connection off the ring)
    os.close(fd)
    mine, stranger = socket.socketpair()
    if mine.fileno() != fd:
        mine, stranger = stranger, mine
    assert mine.fileno() == fd
    near.transport.write(b"x" * 100)
    far.transport.write(b"y" * 100)
    await asyncio.sleep(0.05)
    try:
        assert stranger.recv(1, socket.MSG_DONTWAIT) == b""  # the loop has closed `mine`
    except BlockingIOError:
        pass
    say("nothing strayed")
    os._exit(0)  # whose the number is now is anybody's guess, also for the loop

fastsock.patch(move_after=0)
world.run(main())
"""
)


@pytest.mark.parametrize("path", ["ring"])
def test_a_descriptor_closed_behind_the_back_of_its_transport(world: World) -> None:
    """A mistake, on kernel TCP too; but nothing of ours goes where the number leads."""
    with running(CLOSED_BEHIND, world.loop_kind) as program:
        assert program.line() == "nothing strayed"
        assert program.wait() == 0


WITHOUT_POLLING = (
    PROGRAM
    + """
async def main():
    near, far = await world.pair()
    await exchange(world, near, far, 300)
    data = payload(3 << 20)
    near.transport.write(data)
    assert await world.received(far, len(data)) == data
    far.transport.write_eof()
    await world.until(lambda: near.lost and far.lost)

world.run(main())
say(fastsock.stats().polls_paid)
say(world.problems)
"""
)


@pytest.mark.parametrize("path", ["ring"])
def test_without_polling(world: World) -> None:
    with running(WITHOUT_POLLING, world.loop_kind, FASTSOCK_POLL_US="0") as program:
        assert program.line() == "0"
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == b"[]\n"


PATCHED = """
import asyncio, uvloop
kind, when = sys.argv[1], sys.argv[2]
if when == "before":
    fastsock.patch(move_after=0)

async def handle(reader, writer):
    while line := await reader.readline():
        writer.write(line)
    writer.close()

async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    if when == "late":
        fastsock.patch(move_after=0)
        server.close()
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    number, ends = 0, time.monotonic() + SECONDS / 2
    while number < 2000 or fastsock.path_of(writer).path != "ring" and time.monotonic() < ends:
        writer.write(b"%d\\n" % number)
        assert await reader.readline() == b"%d\\n" % number
        number += 1
    say(fastsock.path_of(writer).path)
    writer.close()
    await writer.wait_closed()
    server.close()

if kind == "uvloop":
    uvloop.install()
asyncio.run(main())
say(fastsock.stats().connections_ring)
"""


@pytest.mark.parametrize("when", ["before", "late"])
@pytest.mark.parametrize("path", ["ring"])
def test_patch_alone_is_enough(world: World, when: str) -> None:
    with running("import warnings; warnings.simplefilter('ignore')\n" + PATCHED, world.loop_kind, when) as program:
        stays = when == "late" and world.loop_kind == "asyncio"  # its epoll instance is older than the patch
        assert program.line() == ("tcp" if stays else "ring")
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == (b"0\n" if stays else b"2\n")


TWICE = (
    PROGRAM
    + """
async def main():
    near, far = await world.pair()
    assert type(near.transport.lower).__module__.partition(".")[0] != "fastsock"
    await exchange(world, near, far, 50)
    assert world.on_ring(near, far)

if sys.argv[2] == "first":
    fastsock.patch(move_after=0)
else:
    fastsock.new_event_loop(kind).close()
    fastsock.patch(move_after=0)
world.run(main())
say("once")
fastsock.unpatch()
world.run(main())
say("again")
"""
)


@pytest.mark.parametrize("order", ["first", "afterwards"])
@pytest.mark.parametrize("path", ["ring"])
def test_a_patched_loop_is_not_wrapped_twice(world: World, order: str) -> None:
    with running(TWICE, world.loop_kind, order) as program:
        assert program.line() == "once"
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == b"again\n"


READS = """
import asyncio, ctypes

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

async def main():
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    before = libc.mallinfo2().hblks
    libc.malloc(262144 + 33)
    say(libc.mallinfo2().hblks - before)
    writer.close()
    server.close()

fastsock.run(main(), loop="asyncio")
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a C library without mallinfo2")
def test_a_stdlib_loops_reads_do_not_map_memory_each_time() -> None:
    """They allocate so much that glibc maps it, unless something as large has been freed before."""
    with running(READS) as program:
        assert program.line() == "0"
