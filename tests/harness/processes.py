"""Other processes for the tests: programs given as source that talk over their pipes, and programs of any kind, started
plain or under `fastsock run`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.pairs import SECONDS, bind_beside, until

ROOT = Path(__file__).parents[2]
MadeOnce = Callable[[str, Callable[[Path], object]], Path]  # the fixture made_once
PLAIN, FASTSOCK, NATIVE = "plain", "fastsock", "native"
WAYS = [(PLAIN, PLAIN), (FASTSOCK, FASTSOCK), (FASTSOCK, PLAIN), (PLAIN, FASTSOCK)]
"""How a server and its client are started; the first is what the others have to equal."""

Self = TypeVar("Self", bound="Process")

PRELUDE = """
import errno, os, select, signal, socket, struct, sys, threading, time
import fastsock
from harness.pairs import *
from harness.processes import connect, say, settle, told
"""


class Process:
    """A running process, which can be told lines. Leaving its context kills it, and what it has started."""

    def __init__(self, words: Sequence[object], **options: Any) -> None:
        options = {"stdout": subprocess.PIPE, **options}
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            bufsize=0,  # a line that came with the one before is seen by `select`
            start_new_session=True,
            **options,
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

    def wait(self) -> int:
        """The exit status, negative for a signal."""
        return self.process.wait(2 * SECONDS)

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self.process.kill()
        self.wait()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Program(Process):
    """A running Python program, given as source; what it imports besides its own imports is in ``PRELUDE``. `within`: a
    command that starts it somewhere else."""

    def __init__(
        self,
        source: str,
        *arguments: object,
        pass_fds: Sequence[int] = (),
        prelude: str = PRELUDE,
        within: Sequence[str] = (),
        **variables: str,
    ) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        environment = {**os.environ, "PYTHONPATH": path, "FASTSOCK_MOVE_AFTER": "0", **variables}
        words = [*within, sys.executable, "-c", prelude + textwrap.dedent(source), *arguments]
        super().__init__(words, pass_fds=pass_fds, env=environment)


running = Program


def command(way: str, *words: object, stats: object = None) -> list[str]:
    """``python WORDS``, ``python -m fastsock run WORDS``, or WORDS as they are."""
    runner = {PLAIN: [sys.executable], FASTSOCK: [sys.executable, "-m", "fastsock", "run"], NATIVE: []}[way]
    told = ["--stats", stats] if way == FASTSOCK and stats else []
    return [str(word) for word in (*runner, *told, *words)]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without settings of fastsock and proxies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return {**kept, **variables}


def compiled(source: Path, folder: Path) -> Path:
    """The program of a C file, in this folder."""
    program = folder / source.stem
    subprocess.run([os.environ.get("CC", "cc"), source, "-o", program], check=True, timeout=60)
    return program


def ended(
    words: Sequence[object],
    status: int | None = 0,
    given: str = "",
    cwd: Path = ROOT,
    pass_fds: Sequence[int] = (),
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """A program that was given this input and ran to its end, with this exit status if there is one."""
    options: dict[str, Any] = {"cwd": cwd, "env": environment(**variables), "pass_fds": pass_fds}
    started = Process(words, stderr=subprocess.PIPE, **options)
    try:
        told = started.process.communicate(given.encode(), timeout=6 * SECONDS)
        output, errors = (text.decode() for text in told)
    except BaseException:
        started.close()
        raise
    assert status in (None, started.process.returncode), output + errors
    return subprocess.CompletedProcess(words, started.process.returncode, output, errors)


def answer_of(way: str, *words: object, stats: object = None, **variables: str) -> Any:
    """What a program prints last, as JSON. It ends well and has no word for stderr."""
    done = ended(command(way, *words, stats=stats), **variables)
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


class Server(Process):
    """A started server: what it says so far, where it listens, its end."""

    def __init__(self, words: Sequence[str], cwd: Path = ROOT, stats: Path | None = None, **variables: str) -> None:
        self.output = tempfile.TemporaryFile()
        self.stats_file = stats
        options = {"stdout": self.output, "stderr": subprocess.STDOUT, "cwd": cwd}
        super().__init__(words, env=environment(PYTHONUNBUFFERED="1", **variables), **options)

    def text(self) -> str:
        return os.pread(self.output.fileno(), 1 << 24, 0).decode()

    def until(self, look: Any, what: str) -> Any:
        """Waits until `look()` is true and returns its value, while the server runs."""
        limit = time.monotonic() + 3 * SECONDS
        while not (value := look()):
            assert self.process.poll() is None, f"{what}: it has ended: {self.text()}"
            assert time.monotonic() < limit, f"{what}: {self.text()}"
            time.sleep(0.005)
        return value

    def said(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Waits until the output has a match, or so many, and returns that one."""
        return self.until(lambda: [*re.finditer(pattern, self.text())][times - 1 :], f"it says {pattern}")[0]

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that the server says it listens on."""
        return int(self.said(r"(?:port|127\.0\.0\.1:)\s*(\d+)")[1])

    def listens(self, port: int) -> None:
        """Waits until it does."""
        self.until(lambda: listens(port), f"it listens on {port}")

    def end(self, number: int = signal.SIGTERM) -> str:
        """Asks the server to end, as one does, and returns all it said; it must exit with 0."""
        self.process.send_signal(number)
        status, output = self.wait(), self.text()
        assert (status, "Traceback" in output) == (0, False), output
        return output

    def stats(self) -> dict[str, Any]:
        """``fastsock.stats()`` of the ended process."""
        assert self.stats_file is not None
        found: dict[str, Any] = json.loads(self.stats_file.read_text())
        return found

    def close(self) -> None:
        super().close()
        self.output.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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
