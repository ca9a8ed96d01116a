"""`python -m bench.memory`: what idle connections between two processes keep in memory.

Two processes have thousands of connections between them and exchange a few messages on each. Then nothing happens, and
the kernel tells their proportional memory (Pss in proc(5) smaps: of a page that both have mapped, half counts for
each). The same program runs on kernel TCP, and on both without connections. What the connections added on fastsock,
less what they added on kernel TCP, is told for one connection, by end and by kind of memory:

    region   pages that both ends share
    side     what forked children share (core/process/fork_shared_slab.c)
    private  the rest: structs of the core, tables
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.process import DrivenProcess, RunFailed
from bench.target import ROOT, import_fastsock

CONNECTIONS, SIZE, ROUNDS = 9000, 64, 24
STEP = 100
"""Connections that are opened at a time: as many as a listener's queue holds."""
MORE, LAST = b"m", b"l"
"""What a message begins with: there are more to come, or it is the last one of these connections."""
UNTIL_MOVED = 300
"""Messages in each direction, at most, before a connection is taken for one that stays on kernel TCP."""
PATIENCE = 300.0
"""Seconds that both ends may take to connect and to talk."""
SPARE = 2000
"""Descriptors beside the connections'."""
KINDS = {"/memfd:fastsock": "region", "/dev/zero": "side"}
"""What proc(5) smaps calls the mappings of a kind."""
COUNTED = ("region", "side", "private")

Report = dict[str, Any]


# ---- an end ------------------------------------------------------------------------------------------------


def be_an_end(kind: str, how: Report) -> None:
    """Has one end of each connection. Says where it listens, then how many have moved; ends with its input."""
    if how["ring"]:
        import_fastsock().patch()
    kept = serve(how) if kind == "server" else drive(how)
    say(standing(kept))
    sys.stdin.readline()


def say(report: Report) -> None:
    print(json.dumps(report), flush=True)


def serve(how: Report) -> list[socket.socket]:
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=STEP) as listener:
        say({"port": listener.getsockname()[1]})
        while len(kept) < how["connections"]:
            fresh = [listener.accept()[0] for _ in range(min(STEP, how["connections"] - len(kept)))]
            last = False
            while not last:
                for sock in fresh:
                    message = take(sock, how["size"])
                    sock.sendall(message)
                    last = message[:1] == LAST
            kept += fresh
    return kept


def drive(how: Report) -> list[socket.socket]:
    kept: list[socket.socket] = []

    def exchange(fresh: list[socket.socket], first: bytes) -> None:
        message = first + bytes(how["size"] - 1)
        for sock in fresh:
            sock.sendall(message)
        for sock in fresh:
            take(sock, how["size"])

    while len(kept) < how["connections"]:
        count = min(STEP, how["connections"] - len(kept))
        fresh = [socket.create_connection(("127.0.0.1", how["port"])) for _ in range(count)]
        if how["ring"]:
            for _ in range(UNTIL_MOVED):
                exchange(fresh, MORE)
                if not standing(fresh)["reasons"]:
                    break
        for _ in range(how["rounds"] - 1):
            exchange(fresh, MORE)
        exchange(fresh, LAST)
        kept += fresh
    return kept


def take(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise OSError("the peer has closed a connection")
        data += piece
    return data


def standing(kept: list[socket.socket]) -> Report:
    """How many connections are on the ring, and why the others are not."""
    if "fastsock" not in sys.modules:
        return {"moved": 0, "reasons": {}}
    reasons = [sys.modules["fastsock"].path_of(sock).reason for sock in kept]
    others = {reason: reasons.count(reason) for reason in set(reasons) - {"both directions"}}
    return {"moved": len(kept) - sum(others.values()), "reasons": others}


# ---- the measurement ---------------------------------------------------------------------------------------


def proportional(pid: int) -> dict[str, float]:
    """Bytes of proportional memory by kind."""
    found, kind = dict.fromkeys(COUNTED, 0.0), "private"
    for line in Path("/proc", str(pid), "smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            name = words[5] if len(words) > 5 else ""
            kind = KINDS.get(name, "private")
        elif words[0] == "Pss:":
            found[kind] += int(words[1]) * 1024
    return found


def page_tables(pid: int) -> float:
    """Bytes of them (VmPTE in proc(5) status)."""
    lines = Path("/proc", str(pid), "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("VmPTE:"))


def run(connections: int, ring: bool, options: argparse.Namespace) -> list[Report]:
    """Both ends as they are found at rest: the server's, then the client's."""
    how = {"connections": connections, "ring": ring, "size": options.size, "rounds": options.rounds}
    with ExitStack() as stack:

        def begin(kind: str, how: Report) -> DrivenProcess:
            command = [sys.executable, "-m", "bench.memory", "--end", kind, json.dumps(how)]
            return stack.enter_context(DrivenProcess(kind, command, cwd=ROOT))

        server = begin("server", how)
        client = begin("client", {**how, **server.hear()})
        reports = [end.hear(PATIENCE) for end in (server, client)]
        for end, report in zip((server, client), reports, strict=True):
            report.update(proportional(end.pid), tables=page_tables(end.pid))
            report["descriptors"] = len(list(Path("/proc", str(end.pid), "fd").iterdir()))
        return reports


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help=f"(default {CONNECTIONS})")
    parser.add_argument("--size", type=int, default=SIZE, help=f"of a message, in bytes (default {SIZE})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"messages each way, once moved (default {ROUNDS})")
    parser.add_argument("--end", nargs=2, metavar=("KIND", "HOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end:
        be_an_end(options.end[0], json.loads(options.end[1]))
        return 0
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = options.connections + SPARE
    if most < limit:
        print(f"{options.connections} connections need `ulimit -n {limit}`, and {most} is allowed", file=sys.stderr)
        return 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    try:
        return measure(options)
    except RunFailed as failure:
        print(failure, file=sys.stderr)
        return 1


def measure(options: argparse.Namespace) -> int:
    n = options.connections
    at_rest, plain_at_rest = run(0, True, options), run(0, False, options)
    ring, plain = run(n, True, options), run(n, False, options)
    everything = 0.0
    print(f"{n} connections, {options.rounds} messages of {options.size} bytes each way; KiB for each connection")
    for at, end in enumerate(("server", "client")):

        def added(kind: str, at: int = at) -> float:
            return (ring[at][kind] - at_rest[at][kind] - (plain[at][kind] - plain_at_rest[at][kind])) / n / 1024

        kinds = {kind: added(kind) for kind in COUNTED}
        everything += sum(kinds.values())
        for reason, count in ring[at]["reasons"].items():
            print(f"{end}: {count} are not on the ring: {reason}")
        ours = ring[at]["descriptors"] - plain[at]["descriptors"]
        print(
            f"{end}: {ring[at]['moved']} moved, {ours} descriptors of ours; {sum(kinds.values()):.2f} = "
            + " + ".join(f"{kind} {size:.2f}" for kind, size in kinds.items())
            + f"; page tables {added('tables'):.2f} more"
        )
    print(f"both ends: {everything:.2f} KiB for each connection")
    return 0 if all(report["moved"] == n for report in ring) else 1


if __name__ == "__main__":
    sys.exit(main())
