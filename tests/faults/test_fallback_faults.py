"""The way out under attack: kills, stops, both ends at once, several holders, more than the kernel takes."""

import contextlib
import mmap
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from conformance.blocking.processes import Gate, forked
from harness.pairs import (
    SECONDS,
    Pair,
    Task,
    listening,
    path_of,
    pattern,
    payload,
    read_exactly,
    read_to_eof,
    taken_back,
)
from harness.processes import running, settle

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")


@contextlib.contextmanager
def other_process(body: Callable[[socket.socket], object]) -> Iterator[tuple[socket.socket, int]]:
    """A connection on the ring whose far end is in a forked process, which runs `body` on it."""
    with fastsock.configure(move_after=0), listening() as listener:

        def far_end() -> None:
            with fastsock.socket() as far:
                far.connect(listener.getsockname())
                settle(far, leads=False)
                body(far)

        with forked(far_end) as pid, listener.accept()[0] as near:
            settle(near)
            yield near, pid


def killed_later(pid: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", range(12))
def test_the_peer_is_killed_around_the_way_out(seed: int) -> None:
    """What it had sent arrives, whenever it dies."""
    chance = random.Random(seed)
    sent, stream, received = mmap.mmap(-1, 8), pattern(1 << 22), bytearray()

    def send(far: socket.socket) -> None:
        done = 0
        while done < len(stream):
            part = stream[done : done + chance.choice((1, 30, 500, 9_000, 60_000))]
            far.sendall(part)
            done += len(part)
            sent[:] = struct.pack("q", done)

    with other_process(send) as (near, pid):
        received += read_exactly(near, chance.randrange(200_000))
        late = Task(killed_later, pid, chance.random() * 0.002)
        time.sleep(chance.random() * 0.002)
        with taken_back(near) as raw:
            late.result()
            at_least = struct.unpack("q", sent[:])[0]
            with contextlib.suppress(ConnectionResetError):
                while chunk := raw.recv(65536):
                    received += chunk
    assert received == stream[: len(received)]
    assert len(received) >= at_least


@pytest.mark.parametrize("unread", [0, 5, 200_000])
def test_a_stopped_peer(unread: int) -> None:
    """It cannot take part, and holds nobody up for long; what it sends when it goes on arrives."""

    def send(far: socket.socket) -> None:
        far.sendall(payload(unread) + b"|")
        sent.open()
        gate.wait()
        far.sendall(b"and on")
        assert read_exactly(far, 6) == b"answer"

    with Gate() as sent, Gate() as gate, other_process(send) as (near, pid):
        assert near.recv(1, socket.MSG_PEEK)
        sent.wait()
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        began = time.monotonic()
        raw = taken_back(near, SECONDS)
        assert time.monotonic() - began < 4
        with raw:
            assert read_exactly(raw, unread + 1) == payload(unread) + b"|"
            os.kill(pid, signal.SIGCONT)
            gate.open()
            assert read_exactly(raw, 6) == b"and on"
            raw.sendall(b"answer")
            assert read_to_eof(raw) == b""


def test_several_holders(pair: Pair) -> None:
    """A forked child gives the connection back to the kernel; its parent goes on using it."""
    near, far = pair
    far.sendall(b"onetwo")
    assert near.recv(3) == b"one"
    gate = Gate()

    def child() -> None:
        raw = taken_back(near)
        assert read_exactly(raw, 3) == b"two"
        raw.sendall(b"from the child")
        gate.open()
        raw.close()

    with gate, forked(child):
        gate.wait()
        assert read_exactly(far, 14) == b"from the child"
        far.sendall(b"to the parent")
        assert near.recv(100) == b"to the parent"
        near.sendall(b"from the parent")
        assert far.recv(100) == b"from the parent"
    far.sendall(b"still")
    assert near.recv(100) == b"still"


def test_no_resources_for_a_bridge(pair: Pair) -> None:
    """Then the connection stays on the ring, and is used as before."""
    near, far = pair
    far.sendall(b"unread")
    far.shutdown(socket.SHUT_WR)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        again = taken_back(near)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with again:
        assert path_of(again) == ("ring" if pair.kind.startswith("ring") else "tcp")
        assert read_to_eof(again) == b"unread"
        again.sendall(b"answer")
        assert far.recv(100) == b"answer"


def test_a_bridge_of_a_program_that_ends() -> None:
    """The bridge is not the program's child, holds none of its descriptors, and ends with the connection."""
    script = """if True:
        import os, socket, subprocess, sys
        import fastsock
        fastsock.patch(move_after=0)
        near = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        near.sendall(b"ping")
        while near.recv(4) == b"pong":
            near.sendall(b"ping")
        while len(near.recv(1000, socket.MSG_PEEK)) < 1000:
            pass
        subprocess.Popen(["cat"], stdin=near, stdout=near)
    """
    with fastsock.configure(move_after=0), listening() as listener:
        program = subprocess.Popen(
            [sys.executable, "-c", script, str(listener.getsockname()[1])], stdout=subprocess.PIPE
        )
        far, _ = listener.accept()
        with far, program:
            while far.recv(4) == b"ping" and path_of(far) != "ring":
                far.sendall(b"pong")
            far.sendall(b"over")
            far.sendall(payload(100_000))
            far.shutdown(socket.SHUT_WR)
            assert program.stdout is not None
            assert program.stdout.read() == b""  # nobody holds the pipe
            assert program.wait(SECONDS) == 0
            assert read_to_eof(far) == payload(100_000)


def test_a_bridge_needs_no_lock_of_the_allocator() -> None:
    """Threads that allocate all the time, from the one arena that there is, when the bridge's process is made. (Only
    then: all else in the program waits for them as well.)"""
    program = """
        import contextlib, ctypes
        from native.ring import library
        churn = library().churn
        say("compiled")

        def cross(numbers):
            over = ctypes.c_uint32(0)
            with contextlib.ExitStack() as stack:
                pairs = [stack.enter_context(make_pair("ring")) for _ in numbers]
                for number, (near, far) in zip(numbers, pairs):
                    far.sendall(payload(30_000, number))
                    far.shutdown(socket.SHUT_WR)
                for _ in range(2):
                    threading.Thread(target=churn, args=(ctypes.byref(over),)).start()
                try:
                    out = [taken_back(near, SECONDS) for near, far in pairs]
                finally:
                    over.value = 1
                for number, raw in zip(numbers, out):
                    with raw:
                        assert read_to_eof(raw) == payload(30_000, number)

        for start in range(0, 60, 6):
            cross(range(start, start + 6))
            say("crossed")
    """
    with running(program, MALLOC_ARENA_MAX="1") as process:
        assert process.line(40) == "compiled"  # it compiles
        for _ in range(10):
            assert process.line() == "crossed"
