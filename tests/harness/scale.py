"""Crowds of processes: servers, clients and other programs that are run as they are, or under fastsock.

The programs know nothing of fastsock. They ask, and are answered with a digest of what they asked, so that each byte is
checked without both sides sending at once. This module is imported by the programs too, hence it imports little.
"""

import asyncio
import contextlib
import ctypes
import errno
import gc
import hashlib
import json
import os
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.processes import Program

PATHS = ("plain", "fastsock")
"""Each test of a crowd runs on kernel TCP, and with all its programs under fastsock."""

SCALE = float(os.environ.get("CROWD", "1"))
"""How much larger than usual a crowd is: for a soak."""

SECONDS = 20
HOST = "127.0.0.1"
PRELUDE = """\
import ctypes, json, os, select, signal, socket, sys, threading, time
from harness.scale import *
begin()
"""


def scaled(count: int) -> int:
    return max(1, round(count * SCALE))


# ---- in the test


def running(source: str, path: str, *arguments: object, **variables: str) -> "Program":
    """A program on `path`, with the names of this module in scope."""
    from harness.processes import Program  # it imports pytest, which the programs do without

    return Program(source, *arguments, prelude=PRELUDE, CROWD_PATH=path, **variables)


def serving(path: str, kind: str = "threads", limit: int = 0, **variables: str) -> "Program":
    """A server that answers; its first line is its port. Each time it is told it says what it holds."""
    return running("serve(sys.argv[1], int(sys.argv[2]))", path, kind, limit, **variables)


PEER = """
with joined(int(sys.argv[1])) as sock:
    answer_all(sock)
say("ended")
"""


def report_of(program: "Program") -> dict[str, int]:
    program.tell()
    report: dict[str, int] = json.loads(program.line())
    return report


KEPT = {"descriptors": 4 + 2 * (64 + 16), "regions": 64 + 16 + 16, "threads": 1}
"""What a server may hold on to, beside what it held before its first client: the parked regions, and the pages of its
loop's event set that processes had which may come again (FS_IDLE_PAGES); and the connection thread."""


def excess(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What is held in vain: how much more than before, where that is more than is kept."""
    return {name: after[name] - before[name] for name in KEPT if after[name] > before[name] + KEPT[name]}


# ---- in the programs


def patched() -> bool:
    return os.environ["CROWD_PATH"] == "fastsock"


def begin() -> None:
    """What a program does first."""
    if "CROWD_PIDS" in os.environ:
        in_new_pids()
    if patched():
        import fastsock

        fastsock.patch()


def say(line: object) -> None:
    print(f"{line}\n", end="", flush=True)  # in one piece, also where output is not buffered


def told() -> None:
    sys.stdin.readline()


def is_on_ring(sock: socket.socket) -> bool:
    """Whether both directions are."""
    if not patched():
        return False
    import fastsock

    return fastsock.path_of(sock) == fastsock.Path("ring", "both directions")


def report() -> dict[str, int]:
    """What this process holds: descriptors, mappings of regions, threads."""
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "regions": sum("memfd:fastsock" in line for line in Path("/proc/self/maps").read_text().splitlines()),
        "threads": len(os.listdir("/proc/self/task")),
    }


REQUEST = struct.Struct("!IIH")
"""How much follows, how long the answer is, and for how many milliseconds the server rests before it reads on."""


def request(data: bytes, answer: int = 32, rest: int = 0) -> bytes:
    return REQUEST.pack(len(data), answer, rest) + data


def parsed(head: bytes) -> tuple[int, int, int]:
    """What a request wants. No client of ours wants very much."""
    size, answer, rest = REQUEST.unpack(head)
    if max(size, answer) > 100 << 20 or rest > 5000:
        raise ConnectionError("no request")
    return size, answer, rest


def answer_to(data: bytes, size: int) -> bytes:
    digest = hashlib.sha256(data).digest()
    return (digest * (size // len(digest) + 1))[:size]


def read_all(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer where the stream ends."""
    got = bytearray()
    while len(got) < size and (chunk := sock.recv(min(size - len(got), 1 << 16))):
        got += chunk
    return bytes(got)


def ask(sock: socket.socket, size: int = 20, answer: int = 32, rest: int = 0) -> None:
    """A request of `size` bytes and its answer."""
    data = random.randbytes(size)
    sock.sendall(request(data, answer, rest))
    expected = answer_to(data, answer)
    got = read_all(sock, answer)
    assert got == expected, f"{len(got)} of {answer} bytes, {'wrong ones' if len(got) == answer else 'then the end'}"


def converse(sock: socket.socket, rounds: int) -> None:
    """Small requests, and a larger one now and then."""
    for number in range(rounds):
        ask(sock, *((70_000, 3000) if number % 10 == 9 else (20 + number, 32)))


def settle(sock: socket.socket) -> None:
    """Asks until the connection is on the ring. Without fastsock, some times."""
    converse(sock, 5)
    limit = time.monotonic() + SECONDS
    while patched() and not is_on_ring(sock):
        assert time.monotonic() < limit, "still not on the ring"
        ask(sock)


def answer_all(sock: socket.socket) -> None:
    """Answers until the stream ends between two requests."""
    while head := read_all(sock, REQUEST.size):
        size, answer, rest = parsed(head)
        time.sleep(rest / 1000)
        data = read_all(sock, size)
        assert len(data) == size
        sock.sendall(answer_to(data, answer))


def listening(backlog: int = 1024) -> socket.socket:
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(backlog)
    return listener


def connected(port: int, below: bool | None = None) -> socket.socket:
    """A connection from a port below or above that one, which decides who publishes, or from any."""
    sock = socket.socket()
    while below is not None:
        try:
            sock.bind((HOST, random.randrange(1024, port) if below else random.randrange(port + 1, 65536)))
            break
        except OSError:
            pass  # taken
    sock.connect((HOST, port))
    return sock


def joined(port: int) -> socket.socket:
    """A connection to `port`. Without one: the first that somebody makes to us, who is told the port."""
    if port:
        return connected(port)
    with listening() as listener:
        say(listener.getsockname()[1])
        return listener.accept()[0]


# ---- servers


def serve(kind: str, limit: int) -> None:
    """Answers at a port until killed, with at most `limit` descriptors."""
    if limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    def tell() -> None:
        while sys.stdin.readline():
            say(json.dumps(report()))
        os._exit(0)

    threading.stack_size(256 << 10)
    listener = listening()
    threading.Thread(target=tell, daemon=True).start()
    if kind == "threads":
        say(listener.getsockname()[1])
        serve_threads(listener)
    elif kind == "uvloop":
        import uvloop

        uvloop.run(serve_loop(listener))
    else:
        asyncio.run(serve_loop(listener))


def answer_and_close(sock: socket.socket) -> None:
    try:
        # A client may be killed, which resets its connection, or in the middle of a request.
        with sock, contextlib.suppress(ConnectionError, AssertionError):
            answer_all(sock)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


def serve_threads(listener: socket.socket) -> None:
    """A thread for each connection."""
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=answer_and_close, args=(sock,), daemon=True).start()
        del sock


async def serve_loop(listener: socket.socket) -> None:
    def ended(_: object, context: dict[str, Any]) -> None:
        os.write(2, f"{context}\n".encode())
        os._exit(1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                size, length, rest = parsed(await reader.readexactly(REQUEST.size))
                await asyncio.sleep(rest / 1000)
                writer.write(answer_to(await reader.readexactly(size), length))
                await writer.drain()
        writer.close()

    asyncio.get_running_loop().set_exception_handler(ended)
    server = await asyncio.start_server(answer, sock=listener, backlog=1024)
    say(listener.getsockname()[1])
    await server.serve_forever()


# ---- forked children


def forked(function: Callable[..., object], *arguments: object) -> int:
    """Calls it in a child, which exits with 0 if it returns."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(4 * SECONDS)
        function(*arguments)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    """Its exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ended_well(*pids: int) -> None:
    assert [ended(pid) for pid in pids] == [0] * len(pids)


FAILED = 255


def clients(port: int, count: int, each: int = 1) -> None:
    """So many processes with so many connections each, all open at the same time. Says how many are on the ring."""
    (here, arrive), (gate, opened) = os.pipe(), os.pipe()

    def client() -> None:
        os.close(opened)
        try:
            socks = [connected(port) for _ in range(each)]
            for sock in socks:
                converse(sock, 12)
        except BaseException:
            os.write(arrive, bytes([FAILED]))
            raise
        os.write(arrive, bytes([sum(map(is_on_ring, socks))]))
        os.read(gate, 1)
        for sock in socks:
            converse(sock, 5)
            sock.close()

    pids = [forked(client) for _ in range(count)]
    os.close(arrive)
    moved = 0
    for _ in range(count):
        state = os.read(here, 1)[0]
        assert state != FAILED, "one of them failed"
        moved += state
    os.close(opened)
    ended_well(*pids)
    say(moved)


# ---- namespaces


def in_new_pids() -> None:
    """Goes on in a new PID namespace, as its process 1. Says its number outside first. Who
    started us waits for us, and we end when that process does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), "no PID namespace")
    pid = os.fork()
    if pid:
        say(pid)
        sys.stdout.close()
        os._exit(max(ended(pid), 0))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    assert os.getpid() == 1


CLONE_NEWPID = 0x20000000  # sched.h
PR_SET_PDEATHSIG = 1  # sys/prctl.h

# ---- processes that are stopped at each of their steps

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long] * 4
_libc.ptrace.restype = ctypes.c_long
# linux/ptrace.h
PTRACE_SYSCALL, PTRACE_SEIZE, PTRACE_INTERRUPT = 24, 0x4206, 0x4207
TRACESYSGOOD, TRACECLONE, EXITKILL = 1, 8, 0x100000
WALL = 0x40000000  # linux/wait.h


def ptrace(request: int, pid: int, data: int = 0) -> bool:
    """Whether the process was still there."""
    if _libc.ptrace(request, pid, 0, data) == 0:
        return True
    error = ctypes.get_errno()
    if error != errno.ESRCH:
        raise OSError(error, os.strerror(error))
    return False


def step(pid: int, gate: int, at_stop: Callable[[int], object]) -> int:
    """Opens the gate for a child of ours, and calls `at_stop` with a number at each entry and exit of a system call
    of any of its threads: meanwhile that thread is stopped, and any other that comes to its next one. Returns how the
    child ended. We have no other child that may end meanwhile."""
    assert ptrace(PTRACE_SEIZE, pid, TRACESYSGOOD | TRACECLONE | EXITKILL)
    assert ptrace(PTRACE_INTERRUPT, pid)
    os.write(gate, b"!")
    number = 0
    while True:
        thread, status = os.waitpid(-1, WALL)
        passed_on = 0
        if not os.WIFSTOPPED(status):
            if thread == pid:
                return os.waitstatus_to_exitcode(status)
            continue
        if os.WSTOPSIG(status) == signal.SIGTRAP | 0x80:
            at_stop(number)
            number += 1
        elif not status >> 16:  # no event of the tracer's own
            passed_on = os.WSTOPSIG(status)
        ptrace(PTRACE_SYSCALL, thread, passed_on)


def may_trace() -> bool:
    pid = os.fork()
    if pid == 0:
        time.sleep(4 * SECONDS)
        os._exit(0)
    try:
        return ptrace(PTRACE_SEIZE, pid, EXITKILL)
    except OSError:
        return False
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
