"""What a stranger sends to harm a process: descriptors whose last close takes for ever.

A stranger is a process of another user, which only root can start. Everything is tried with one of the same user, too.
"""

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from harness.hostile_peer import NOBODY
from harness.pairs import KernelSocket, until
from harness.processes import Program

BAITS = ["lingers", "hidden in another's queue", "more than are expected"]

SENDERS = [
    "same user",
    pytest.param("another user", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")),
]


def lingering() -> tuple[socket.socket, socket.socket]:
    """A TCP socket whose last close waits for a reader, and the other end, which never reads."""
    with KernelSocket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = KernelSocket()
        near.connect(listener.getsockname())
        far = listener.accept()[0]
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(b"x" * 65536)
    return near, far


def send_bait(to: socket.socket, said: bytes, bait: str, far: list[socket.socket]) -> None:
    """Sends it, and keeps no copy. `far`: what it waits for."""
    near, reader = lingering()
    far.append(reader)
    if bait == "hidden in another's queue":
        outer, inner = socket.socketpair()
        socket.send_fds(outer, [b"x"], [near.fileno()])
        near.close()
        outer.close()
        near = inner
    try:
        socket.send_fds(to, [said], [near.fileno()] * (5 if bait == "more than are expected" else 1))
    except OSError:
        far.pop().close()  # nothing lingers
        raise
    finally:
        near.close()


def send_several(to: socket.socket, said: bytes, count: int, far: list[socket.socket]) -> None:
    """One message with so many that linger."""
    pairs = [lingering() for _ in range(count)]
    far += [reader for _, reader in pairs]
    socket.send_fds(to, [said], [near.fileno() for near, _ in pairs])
    for near, _ in pairs:
        near.close()


@contextlib.contextmanager
def stranger(sender: str, function: Callable[[list[socket.socket]], object]) -> Iterator[None]:
    """Runs in another process, which then lives until the end of the block. Nothing lingers longer."""
    exit_, entry = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(exit_)
            if sender == "another user":
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            kept: list[socket.socket] = []
            function(kept)
            os.write(entry, b"!")
            signal.pause()
        os._exit(0)
    try:
        os.close(entry)
        assert os.read(exit_, 1) == b"!", "the stranger could not do it"
        yield
    finally:
        os.close(exit_)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def stopped(program: Program) -> Iterator[None]:
    """Stands still meanwhile: who sends something closes its own copy first. (What lingers already ends by that.)"""
    os.kill(program.pid, signal.SIGSTOP)
    try:
        os.waitpid(program.pid, os.WUNTRACED)
        yield
    finally:
        os.kill(program.pid, signal.SIGCONT)


def asked_at(program: Program) -> bytes:
    """The name of the socket for requests of a process, which has one."""
    own = set()
    for number in os.listdir(f"/proc/{program.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            own.add(os.readlink(f"/proc/{program.pid}/fd/{number}"))
    with open("/proc/net/unix") as table:
        for line in table:
            fields = line.split()
            if f"socket:[{fields[6]}]" in own and "/ask/" in fields[-1]:
                return b"\0" + fields[-1][1:].encode()
    raise AssertionError("no socket for requests")


LOOK = struct.pack("=QQII", 0x316B6F6F6C2D7366, 7, 0, 0)


def answers(name: bytes) -> bool:
    """Whether the connection thread of a process answers a look from outside."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as asker:
        asker.bind("")  # the kernel chooses an abstract name
        asker.settimeout(1)
        with contextlib.suppress(OSError):
            asker.sendto(LOOK, name)
            return asker.recv(10000)[8:16] == LOOK[8:16]
        return False


def await_answer(name: bytes) -> None:
    until(lambda: answers(name), "requests are answered")
