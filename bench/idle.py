"""`python -m bench.idle`: what fastsock costs a program that does something else.

Forks, programs started, threads, files, signals, memory and the table of descriptors, of a program that has no
connection, one on kernel TCP, or one on the ring. Each round starts the program three times: plain, patched, and plain
once more. The third is the null test: what it differs from the first by is no difference. A row is "inside" if the
median ratio of patched to plain is at most 1.05, or in the null test's quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from statistics import median, quantiles

SECONDS = 120
NEAR = 1.05
STATES = {"no connection": 0, "on kernel TCP": 2, "on the ring": 100}
"""How many messages the program's one connection has carried before anything is measured."""

ROWS = {
    "start and exit": "ms",
    "fork": "us",
    "subprocess": "us",
    "posix_spawn": "us",
    "thread": "us",
    "open and close a file": "us",
    "open and close a socket": "us",
    "signal": "us",
    "list /proc/self/fd": "us",
    "page faults of a fork": "",
    "memory": "KiB",
    "table of descriptors": "",
}
"""What is measured, and in which unit."""

PROGRAM = """
import json, os, resource, signal, socket, subprocess, sys, threading, time
if sys.argv[1] == "patched":
    import fastsock
    fastsock.patch()
messages, repeats = int(sys.argv[2]), int(sys.argv[3])
if messages:
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    for number in range(messages):
        near.sendall(b"m"); far.recv(1); far.sendall(b"m"); near.recv(1)
        if number % 20 == 0:
            time.sleep(0.02)  # for the connection thread

def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)

def thread():
    started = threading.Thread(target=int)
    started.start()
    started.join()

def faults():
    return sum(resource.getrusage(who).ru_minflt for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

def status(field):
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith(field)))

signal.signal(signal.SIGUSR1, lambda *_: None)
ACTS = {
    "fork": fork,
    "subprocess": lambda: subprocess.run(["/bin/true"]),
    "posix_spawn": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "thread": thread,
    "open and close a file": lambda: os.close(os.open("/dev/null", os.O_RDONLY)),
    "open and close a socket": lambda: socket.socket().close(),
    "signal": lambda: os.kill(os.getpid(), signal.SIGUSR1),
    "list /proc/self/fd": lambda: os.listdir("/proc/self/fd"),
}
figures = {"memory": status("RssAnon"), "table of descriptors": status("FDSize")}
for name, act in ACTS.items():
    times = []
    for _ in range(3):
        act()
    before = faults()
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    if act is fork:
        figures["page faults of a fork"] = (faults() - before) / repeats
    figures[name] = sorted(times)[repeats // 4] * 1e6  # (whatever else runs on the machine makes times longer only)
if messages and sys.argv[1] == "patched":  # (at the end, as this loads what a program that does not ask has not loaded)
    assert fastsock.path_of(near).path == ("ring" if messages > 8 else "tcp"), fastsock.path_of(near)
print(json.dumps(figures))
"""
STARTED = """
import socket, subprocess, sys, threading
if sys.argv[1] == "patched":
    import fastsock
    fastsock.patch()
"""


def sample(way: str, messages: int, repeats: int) -> dict[str, float]:
    """Runs the program once. Returns the figure of each row."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", STARTED, way], check=True, timeout=SECONDS)
    took = time.perf_counter() - began
    command = [sys.executable, "-c", PROGRAM, way, str(messages), str(repeats)]
    done = subprocess.run(command, check=True, timeout=SECONDS, capture_output=True, text=True)
    return {"start and exit": took * 1e3, **json.loads(done.stdout)}


def rows(triples: list[tuple[dict[str, float], ...]]) -> Iterable[tuple[str, float, float, float, list[float], bool]]:
    """From samples plain, patched, plain: name, plain, patched, ratio, the null test's ratios, whether it is inside."""
    for name in ROWS:
        ratio = median(patched[name] / plain[name] for plain, patched, _ in triples)
        null = [again[name] / plain[name] for plain, _, again in triples]
        usual, ours = (median(each[number][name] for each in triples) for number in (0, 1))
        spread = quantiles(null, n=4) if len(null) > 1 else [null[0]] * 3
        yield name, usual, ours, ratio, spread, ratio <= max(NEAR, spread[2])


def main(arguments: list[str]) -> int:
    """Measures and prints the table. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description="What fastsock costs a program beside.")
    parser.add_argument("--rounds", type=int, default=9, help="for each state (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=60, help="of each act in a program (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="of descriptors (default: the one in force)")
    options = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if options.limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.limit, hard))
    os.environ.pop("FASTSOCK_ENABLED", None)
    # (Installed modules are compiled already: the compiler leaves 1.5 MB behind, whose tables each fork copies.)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="fastsock-idle-") as compiled:
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        for way in ("plain", "patched"):
            sample(way, max(STATES.values()), 1)
        _measure(options)
    return 0


def _measure(options: argparse.Namespace) -> None:
    """Measures and prints the table of each state."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for state, messages in STATES.items():
        ways = ("plain", "patched", "plain")
        triples = [tuple(sample(way, messages, options.repeats) for way in ways) for _ in range(options.rounds)]
        print(f"\n{state}, limit of {limit} descriptors, {options.rounds} rounds")
        print(f"{'':32}{'plain':>10}{'patched':>10}{'ratio':>8}  {'null test':16}")
        for name, plain, patched, ratio, spread, inside in rows(triples):
            title = f"{name}, {ROWS[name]}" if ROWS[name] else name
            null, said = f"{spread[0]:.2f} to {spread[2]:.2f}", "inside" if inside else "outside"
            print(f"{title:32}{plain:10.1f}{patched:10.1f}{ratio:8.2f}  {null:16}{said}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
