"""System calls of running processes, counted from outside: by perf where it may, else by strace, else not at all.

perf counts in the kernel and hardly disturbs. strace stops a thread at each call, so that what polls or sleeps at full
speed need not do so under it: its figures say less.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

from bench.programs.processes import family

TOTAL = "raw_syscalls:sys_enter"
# fmt: off
NAMED = (
    "accept4", "brk", "clock_nanosleep", "close", "connect", "epoll_ctl", "epoll_pwait", "epoll_wait", "fcntl",
    "futex", "getpeername", "getsockname", "getsockopt", "ioctl", "madvise", "mmap", "munmap", "newfstat",
    "openat", "poll", "ppoll", "pselect6", "read", "recvfrom", "recvmsg", "sched_yield", "select", "sendfile64",
    "sendmsg", "sendto", "setsockopt", "shutdown", "socket", "write", "writev",
)
# fmt: on
PATIENCE = 10.0
"""Seconds that a tracer may take to start or to end."""


class Calls:
    """Calls by name, and the number of all."""

    def __init__(self) -> None:
        self.total = 0
        self.by_name: dict[str, int] = {}

    def add(self, name: str, times: int) -> None:
        self.by_name[name] = self.by_name.get(name, 0) + times


def tool() -> str | None:
    """What counts here: "perf", "strace" or nothing."""
    command = ["perf", "stat", "-e", f"{TOTAL},syscalls:sys_enter_read", "true"]
    if shutil.which("perf") and subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return "perf"
    return "strace" if shutil.which("strace") else None


@contextlib.contextmanager
def counting(by: str, roots: list[int]) -> Iterator[Calls]:
    """Counts the calls of the processes and their descendants meanwhile; the figures are there afterwards.

    Raises OSError where the tracer does not start or end.
    """
    calls = Calls()
    pids = [str(pid) for root in roots for pid in family(root)]
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        output = Path(directory) / "calls"
        stack.enter_context((perf if by == "perf" else strace)(pids, output))
        yield calls
        stack.close()
        (read_perf if by == "perf" else read_strace)(output.read_text(), calls)


@contextlib.contextmanager
def perf(pids: list[str], output: Path) -> Iterator[None]:
    events = ",".join([TOTAL, *(f"syscalls:sys_enter_{name}" for name in NAMED)])
    order, answer = os.pipe(), os.pipe()
    words = ["-x", ",", "-D", "-1", "--control", f"fd:{order[0]},{answer[1]}", "-e", events, "-o", str(output)]
    try:
        with ended(["perf", "stat", *words, "-p", ",".join(pids)], (order[0], answer[1])) as process:
            os.set_blocking(answer[0], False)
            for word in (b"enable\n", b"disable\n"):
                os.write(order[1], word)
                until(process, lambda: b"ack" in read_some(answer[0]))
                if word == b"enable\n":
                    yield
    finally:
        for descriptor in (*order, *answer):
            os.close(descriptor)


@contextlib.contextmanager
def strace(pids: list[str], output: Path) -> Iterator[None]:
    attach = [word for pid in pids for word in ("-p", pid)]
    with ended(["strace", "-c", "-f", "-o", str(output), *attach]) as process:
        until(process, lambda: all(traced(pid) for pid in pids))
        yield


@contextlib.contextmanager
def ended(command: list[str], descriptors: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """The tracer, told to end in the end."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, pass_fds=descriptors, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(process: subprocess.Popen[bytes], true: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE
    while not true():
        if process.poll() is not None or monotonic() > deadline:
            raise OSError("it does not count")
        sleep(0.01)


def read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 100)
    except BlockingIOError:
        return b""


def traced(pid: str) -> bool:
    """Whether every thread has a tracer; a process that is gone has all it will get."""
    for status in Path("/proc", pid, "task").glob("*/status"):
        with contextlib.suppress(OSError):
            if "TracerPid:\t0\n" in status.read_text():
                return False
    return True


def read_perf(text: str, calls: Calls) -> None:
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) < 3 or not fields[0].isdigit():
            continue
        if fields[2] == TOTAL:
            calls.total = int(fields[0])
        elif int(fields[0]):
            calls.add(fields[2].rpartition("sys_enter_")[2], int(fields[0]))


def read_strace(text: str, calls: Calls) -> None:
    """The columns: share of the time, seconds, microseconds a call, calls, errors if any, name."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != "total":
            calls.add(fields[-1], int(fields[3]))
    calls.total = sum(calls.by_name.values())
