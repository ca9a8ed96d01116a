"""Other processes for the tests: Python programs given as source, that talk over their pipes."""

import contextlib
import os
import random
import select
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from pairs import SECONDS, bind_beside, until

PRELUDE = """
import errno, os, select, signal, socket, struct, sys, threading, time
import fastsock
from pairs import *
from processes import connect, say, settle, told
"""


class Program:
    """A running Python process; what it imports besides its own imports is in ``PRELUDE``."""

    def __init__(
        self, source: str, *arguments: object, pass_fds: Sequence[int] = (), prelude: str = PRELUDE, **variables: str
    ) -> None:
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + textwrap.dedent(source), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a line that came with the one before is seen by `select`
            pass_fds=pass_fds,
            env={**os.environ, "PYTHONPATH": path, "FASTSOCK_MOVE_AFTER": "0", **variables},
        )
        self.pid = self.process.pid

    def line(self, seconds: float = SECONDS) -> str:
        """The next line the process printed."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], seconds)[0], "the process printed nothing"
        return self.process.stdout.readline().decode().rstrip("\n")

    def tell(self, line: str = "") -> None:
        """Lets the process go on from ``told()``; or has it read a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait(self) -> int:
        """The exit status, negative for a signal."""
        return self.process.wait(2 * SECONDS)

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self.process.kill()
        self.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def running(
    source: str, *arguments: object, pass_fds: Sequence[int] = (), prelude: str = PRELUDE, **variables: str
) -> Iterator[Program]:
    """A `Program`, killed on leaving."""
    with contextlib.closing(Program(source, *arguments, pass_fds=pass_fds, prelude=prelude, **variables)) as program:
        yield program


def port_for_later() -> int:
    """A port of loopback that nothing has, for a program that must be told one. It is none that the kernel gives
    to whoever asks for any: such a one may be taken before the program binds it."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, first)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def marked(name: str, value: str) -> list[int]:
    """The processes in whose environment this variable has this value."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{name}={value}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            pass  # it has ended, or is another user's
    return found


# What both sides of a connection do, in the test and in a program


def settle(sock: object, path: str = "ring", leads: bool = True) -> None:
    """Drives bytes both ways until both ends are on `path`; one end leads, the other follows."""
    import fastsock

    if not leads:
        while sock.recv(1) == b"?":
            sock.sendall(b"r" if fastsock.path_of(sock).path == path else b"t")
        return

    def both() -> bool:
        sock.sendall(b"?")
        return sock.recv(1) == b"r" and fastsock.path_of(sock).path == path

    until(both, f"both ends are on {path}")
    sock.sendall(b"!")


def connect(port: int, publishes: bool | None = None, host: str = "127.0.0.1") -> object:
    """A fastsock connection to a port of this host, whose end has the wanted part in the rendezvous."""
    import fastsock

    sock = fastsock.socket()
    sock.settimeout(SECONDS)
    if publishes is None:
        sock.bind((host, 0))
    else:
        bind_beside(sock, port, below=publishes, host=host)
    sock.connect((host, port))
    return sock


def say(line: object) -> None:
    """In a program: prints a line for ``Program.line``."""
    print(line, flush=True)


def told() -> None:
    """In a program: waits for ``Program.tell``."""
    sys.stdin.readline()
