"""The processes of a run: workers, what belongs to them, where they stand, and that none is left."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.soak.containers import Container

ROOT = Path(__file__).parents[2]
MARK = "CHAOS_RUN"


class Worker:
    """A worker process, in a session of its own: what it forks and starts belongs to its group."""

    def __init__(
        self,
        role: str,
        slot: str,
        words: dict[str, Any],
        variables: dict[str, str],
        out: Path,
        container: Container | None = None,
    ) -> None:
        self.role, self.slot, self.words = role, slot, words
        self.alive = time.monotonic()
        self.expected = False  # the driver has ended it
        self.bye: dict[str, Any] | None = None
        self.limit: tuple[int, int] | None = None  # its own RLIMIT_NOFILE, while it has another
        environment = {**os.environ, **variables, "CHAOS_SLOT": slot, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "fastsock", "run", "-m", "tests.soak.worker", role, json.dumps(words)]
        with open(out / f"stderr-{slot}.txt", "a") as log:

            def start() -> subprocess.Popen[str]:
                return subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=environment,
                    text=True, start_new_session=True,
                )  # fmt: skip

            self.process = container.start(start) if container else start()
        self.pid = self.process.pid
        self.own_pid = own_number(self.pid)

    def read_into(self, lines: queue.SimpleQueue[tuple[Worker, dict[str, Any]]]) -> None:
        """Starts a thread that reads what the worker and its children say."""

        def read() -> None:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                try:
                    said = json.loads(line)
                except ValueError:
                    said = {"what": "trouble", "slot": self.slot, "pid": self.pid, "detail": f"said {line!r}"}
                lines.put((self, said))

        threading.Thread(target=read, daemon=True).start()

    def tell(self, command: str) -> None:
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            pass

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def signal_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass


def own_number(pid: int) -> int:
    """What a process calls itself: it may be in a container."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return pid
    return int(status.partition("NSpid:")[2].partition("\n")[0].split()[-1])


def of_run(run: str) -> Iterator[tuple[int, str, str]]:
    """All processes of a run that have not ended: process id, name (comm), slot."""
    mark = f"{MARK}={run}\0".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            # (A process whose first thread has ended shows what it is in the others only.)
            for task in os.listdir(f"/proc/{entry}/task"):
                environment = Path("/proc", entry, "task", task, "environ").read_bytes() + b"\0"
                if mark in environment:
                    name = Path("/proc", entry, "comm").read_text().strip()
                    slots = (word[11:] for word in environment.split(b"\0") if word.startswith(b"CHAOS_SLOT="))
                    yield int(entry), name, next(slots, b"").decode()
                    break
        except OSError:
            continue


def end_when_told() -> None:
    """SIGTERM and SIGHUP leave this process as an exception does: what it has started is ended on the way."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def send_signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


# ---- where they stand --------------------------------------------------------------------------------------


def take_pictures(run: str, spoken: set[int], hosts: Iterable[str], out: Path, what: str) -> None:
    """Both ends' states, all threads' stacks and the kernel's view, into the run's directory."""
    with (out / "dump").open("a") as file:
        print(what, file=file)  # all processes look at its size
    with (out / "kernel.txt").open("a") as file:
        print(f"==== {time.strftime('%X')} {what}", file=file, flush=True)
        for host in hosts if shutil.which("ss") else ():
            subprocess.run(
                ["ss", "-tinemp", f"( src {host} or dst {host} )"], stdout=file, stderr=file, timeout=30, check=False
            )
        with open("/proc/net/unix") as table:
            print(*(line for line in table if "@fastsock" in line), sep="", file=file)
        for pid, name, slot in of_run(run):
            print(f"---- {pid} {name} {slot}", file=file)
            for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
                try:
                    values = [(task / kind).read_text().strip() for kind in ("wchan", "syscall", "stat")]
                except OSError:
                    continue
                print(task.name, *values, file=file)
            if own_number(pid) in spoken and name != "fastsock-bridge":
                send_signal(pid, signal.SIGUSR1)


# ---- nothing is left ---------------------------------------------------------------------------------------


def names_of(host: str) -> list[str]:
    """Names of an address in this network."""
    with open("/proc/net/unix") as table:
        wanted = (f"/{host}:", f"-{host}:")
        return [line.split()[-1] for line in table if "@fastsock" in line and any(it in line for it in wanted)]


def leftovers(run: str, names_left: Callable[[], list[str]], seconds: float) -> list[str]:
    """What a run has left: processes and names. Waits for them to go."""
    until = time.monotonic() + seconds
    while True:
        processes, names = list(of_run(run)), names_left()
        if not processes and not names:
            return []
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    found = [f"process {pid} ({name}) of {slot} is left" for pid, name, slot in processes]
    return found + [f"name {name} is left" for name in names]
