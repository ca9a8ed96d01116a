"""`python -m bench.inspect_cost`: what `fastsock top` and `fastsock ss` cost the process that they look at.

That process has idle connections on the ring, both ends of each, so that all processor time it uses is for those who
look. Printed is its processor time: with nobody looking, under `fastsock top` (a look a second), for a `fastsock ss`.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import threading
import time
from statistics import median

import fastsock
from fastsock.tools.checks import busy, remark

CONNECTIONS, SECONDS, LOOKS = 100, 10, 20
PATIENCE = 60.0
"""Seconds that a command may take beside its looking."""


# ---- the process that is looked at -------------------------------------------------------------------------


def be_watched(connections: int) -> None:
    """Has so many connections. Says how many ends are on the ring, then with each line its processor time."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    fastsock.patch(move_after=0, _meeting_ms=500)
    kept = []
    with socket.create_server(("127.0.0.1", 0), backlog=connections) as listener:
        for _ in range(connections):
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
            kept += [near, far]
            talk(near, far)
    print(sum(fastsock.path_of(end).reason == "both directions" for end in kept), flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


def talk(near: socket.socket, far: socket.socket) -> None:
    """Until both directions have moved, or a second is over: what moves it is calls of both ends at once."""
    ends = time.monotonic() + 1
    while fastsock.path_of(near).reason != "both directions" and time.monotonic() < ends:
        other = threading.Thread(target=lambda: far.sendall(far.recv(1)))
        other.start()
        near.sendall(b"x")
        near.recv(1)
        other.join()


# ---- the measurement ---------------------------------------------------------------------------------------


class Watched:
    """The process that is looked at."""

    def __init__(self, connections: int) -> None:
        command = [sys.executable, "-m", "bench.inspect_cost", "--watched", "--connections", str(connections)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def used(self) -> float:
        """Seconds of processor time so far."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.line())


def looked(*words: str, seconds: int = 0) -> bool:
    """Whether a command of fastsock's that looks was answered."""
    command = [sys.executable, "-m", "fastsock", *words]
    return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=PATIENCE + seconds, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.inspect_cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help=f"of that process (default {CONNECTIONS})")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"of each measurement (default {SECONDS})")
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watched:
        be_watched(options.connections)
        return 0
    if said := remark(busy(0.3)):
        print(said, file=sys.stderr)
    with Watched(options.connections) as watched:
        ends = watched.line().strip()
        if not ends:
            return 1  # it has said why
        print(f"a process with {ends} ends of connections on the ring, all idle", flush=True)

        before, began = watched.used(), time.monotonic()
        time.sleep(options.seconds)
        told("nobody looks", watched.used() - before, time.monotonic() - began)

        before, began = watched.used(), time.monotonic()
        if not looked("top", "--interval", "1", "--rounds", str(options.seconds), seconds=options.seconds):
            return 1
        told("fastsock top", watched.used() - before, time.monotonic() - began)

        looks = []
        for _ in range(LOOKS):
            before = watched.used()
            if looked("ss", "--json", str(watched.pid)):
                looks.append(watched.used() - before)
        if not looks:
            print("it did not answer a fastsock ss within half a second", file=sys.stderr)
            return 1
        print(f"one fastsock ss   {1000 * median(looks):.2f} ms of processor time (the median of {len(looks)})")
    return 0


def told(what: str, used: float, seconds: float) -> None:
    share = f"{100 * used / seconds:.3f} % of a processor"
    print(f"{what:16}  {share}, {1000 * used:.1f} ms in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
