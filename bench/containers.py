"""`python -m bench.containers`: two containers on a bridge, kernel TCP and fastsock by turns. Needs root.

Each turn starts both programs afresh. A figure is the median of the turns; the ratio is that of neighbouring turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from fastsock.launch import LIBRARY
from tests.soak.containers import Bridge

ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1 << 16): connection.sendall(data)
"""
ASKS = """
import json, resource, socket, sys, time
host, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
data, count = bytes(size), 0
with socket.create_connection((host, 7000)) as connection:
    def ask():
        connection.sendall(data)
        left = size
        while left: left -= len(connection.recv(left))
    for _ in range(200): ask()
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(20): ask()
        count += 20
    print(count / (time.perf_counter() - begun))
"""
QUERIES = """
import psycopg, sys, time
host, seconds, count = sys.argv[1], float(sys.argv[2]), 0
with psycopg.connect(f"host={host} port=7000 user=postgres sslmode=disable", autocommit=True) as database:
    cursor = database.cursor()
    def ask(): cursor.execute("SELECT 1", prepare=True).fetchone()
    for _ in range(100): ask()
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        ask()
        count += 1
    print(count / (time.perf_counter() - begun))
"""
FIRST = """
import socket, sys, time
host, fastsock, asked, moved = sys.argv[1], sys.modules.get("fastsock"), [], []
for _ in range(3):
    with socket.create_connection((host, 7000)) as connection:
        def ask():
            begun = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            return time.perf_counter() - begun
        for _ in range(3): ask()  # before it looks for its peer
        took = [ask() for _ in range(40)]
        asked.append(sum(took) * 1e6)
        if fastsock:
            assert fastsock.path_of(connection).path == "ring", fastsock.path_of(connection)
print(*asked)
"""


@attrs.frozen
class Work:
    name: str
    goal: float
    server: list[str]
    client: list[str]
    port: int = 7000
    one_cpu: bool = False


def programs(address: str, seconds: float, bin: Path) -> list[Work]:
    python = [sys.executable, "-c"]
    redis = ["redis-server", "--save", "", "--protected-mode", "no", "--port", "7000", "--loglevel", "warning"]
    asks = ["redis-benchmark", "-h", address, "-p", "7000", "-t", "get", "--csv"]
    postgres = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        bin / "postgres",
        "-D",
        "DATA",
        "-p",
        "7000",
        "-c",
        "fsync=off",
    ]
    postgres += ["-c", f"listen_addresses={address}", "-c", "unix_socket_directories="]
    echo = [*python, ECHO, address]
    return [
        Work("redis GET, -c 1", 6, redis, [*asks, "-c", "1", "-n", str(round(15000 * seconds))]),
        Work("redis GET, -c 50", 1.6, redis, [*asks, "-c", "50", "-n", str(round(50000 * seconds))]),
        Work("Python echo, 64 B", 20, echo, [*python, ASKS, address, "64", str(seconds)]),
        Work("Python echo, 64 KiB", 5, echo, [*python, ASKS, address, "65536", str(seconds)]),
        Work("Python echo, 64 B, one CPU", 1.5, echo, [*python, ASKS, address, "64", str(seconds)], one_cpu=True),
        Work("psycopg, SELECT 1", 4, list(map(str, postgres)), [*python, QUERIES, address, str(seconds)]),
        Work("first contact", 0, echo, [*python, FIRST, address]),
    ]


@contextmanager
def database(bin: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fs-") as folder:
        os.chown(folder, 65534, 65534)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        words = [*user, bin / "initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run(list(map(str, words)), check=True, capture_output=True)
        with open(f"{folder}/data/pg_hba.conf", "a") as rules:
            rules.write("host all all all trust\n")
        yield f"{folder}/data"


def turn(bridge: Bridge, work: Work, fast: bool, data: str, apart: bool = False) -> list[float]:
    """What the client says. `apart`: each end has a CPU."""
    server, client = bridge.containers["server"], bridge.containers["client"]
    variables = {**os.environ, "PGCONNECT_TIMEOUT": "10"}
    if fast:
        variables |= bridge.variables
        if work.name == "first contact":
            variables["FASTSOCK_MOVE_AFTER"] = "4"

    def start(words: Sequence[str], cpu: int, **options: int) -> subprocess.Popen[str]:
        words = [data if word == "DATA" else word for word in words]
        if work.one_cpu or apart:
            words = ["taskset", "--cpu-list", str(0 if work.one_cpu else cpu), *words]
        if fast and sys.executable in words:
            at = words.index(sys.executable)
            words = [*words[:at], sys.executable, "-m", "fastsock", "run", *words[at + 1 :]]
        elif fast:
            words = ["env", f"LD_PRELOAD={LIBRARY}", *words]
        return subprocess.Popen(words, env=variables, text=True, **options)  # type: ignore[call-overload,no-any-return]

    with ExitStack() as stack:
        running = server.start(lambda: start(work.server, 0, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

        def end() -> None:
            running.terminate()
            running.wait()

        stack.callback(end)
        probe = f"import socket; raise SystemExit(socket.socket().connect_ex(({server.address!r}, {work.port})))"
        until = time.monotonic() + 20
        while client.start(lambda: subprocess.Popen([sys.executable, "-S", "-c", probe])).wait():
            if time.monotonic() > until:
                raise OSError(f"{work.name}: the server does not listen")
        asked = client.start(lambda: start(work.client, 1, stdout=subprocess.PIPE))
        said = asked.communicate(timeout=120)[0]
    last = said.strip().splitlines()[-1]
    return [float(last.split(",")[1].strip('"'))] if last.startswith('"') else [float(word) for word in last.split()]


def measure(bridge: Bridge, work: Work, turns: int, data: str, apart: bool, tell: Callable[[str], None]) -> None:
    taken: dict[bool, list[list[float]]] = {False: [], True: []}
    for _ in range(turns):
        for fast in (False, True):
            taken[fast].append(turn(bridge, work, fast, data, apart))
    if work.name == "first contact":
        kernel = statistics.median(each for figures in taken[False] for each in figures)
        firsts = [statistics.median(figures[at] for figures in taken[True]) for at in range(3)]
        tell(
            f"{work.name}: 40 requests take {kernel:.0f} us on kernel TCP; under fastsock, which meets its peer within "
            f"them, {firsts[0]:.0f} us with the proof, {firsts[1]:.0f} and {firsts[2]:.0f} us without"
        )
        return
    ratios = [fast[0] / plain[0] for plain, fast in zip(taken[False], taken[True], strict=True)]
    medians = [statistics.median(each[0] for each in taken[fast]) for fast in (False, True)]
    low, high = min(ratios), max(ratios)
    tell(f"{work.name}: {medians[0]:.0f} -> {medians[1]:.0f} a second, {statistics.median(ratios):.2f} times "
         f"({low:.2f} to {high:.2f}; wanted: {work.goal:g})")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.containers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="turns of each of the two (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a turn takes (default 1)")
    parser.add_argument("--apart", action="store_true", help="a CPU for each end")
    parser.add_argument("names", nargs="*", metavar="NAME", help="works whose names begin so (default: all)")
    options = parser.parse_args()
    bin = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path(shutil.which("postgres") or "/usr/bin/x").parent)
    bridge = Bridge()
    try:
        with database(bin) as data:
            for work in programs(bridge.containers["server"].address, options.seconds, bin):
                if not options.names or work.name.startswith(tuple(options.names)):
                    measure(bridge, work, options.turns, data, options.apart, lambda line: print(line, flush=True))
    finally:
        bridge.close()


if __name__ == "__main__":
    main()
