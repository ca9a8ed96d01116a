"""`python -m bench.instructions`: instructions and cache misses of a 64 B message on the ring, Python's own included.

Counted by callgrind, so nothing else that runs on the machine matters: both ends of a connection are in one process and
take turns, and what a run of many messages has more than a run of few is divided by their number. Caches are valgrind's
model of this machine's. Needs valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

FEW, MANY = 1600, 9600
SECONDS = 300
FIGURES = {
    "instructions": r"Collected : (\d+)",
    "D1 misses": r"D1  misses:\s+([\d,]+)",
    "LL misses": r"LLd misses:\s+([\d,]+)",
}
"""What a message costs, and where callgrind tells it."""

PROGRAM = """
import os, sys, time
import fastsock
fastsock.patch()
import socket
what, count = sys.argv[1], int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
for sock in near, far:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
message, batch = b"m" * 64, 16
for _ in range(400):
    near.sendall(message); far.recv(100); far.sendall(message); near.recv(100)
    if _ % 50 == 0:
        time.sleep(0.01)  # for the connection thread
assert fastsock.path_of(near).path == fastsock.path_of(far).path == "ring"
if what == "echo":
    for _ in range(count):
        near.sendall(message); far.recv(100); far.sendall(message); near.recv(100)
elif what == "send":
    for _ in range(count // batch):
        for _ in range(batch):
            near.send(message)
        far.recv(65536)
else:
    for _ in range(count // batch):
        near.send(message * batch)
        for _ in range(batch):
            far.recv(64)
os._exit(0)
"""
KINDS = {
    "echo": "a round trip: two sends, two receives",
    "send": "a send, and a sixteenth of a receive of 1 KiB",
    "receive": "a receive of 64 B, and a sixteenth of a send of 1 KiB",
}


def counted(kind: str, messages: int) -> dict[str, int]:
    """Of a whole run."""
    command = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, kind, str(messages)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    found = {name: re.search(pattern, done.stderr) for name, pattern in FIGURES.items()}
    return {name: int(match[1].replace(",", "")) for name, match in found.items() if match}


def per_message(kind: str, few: int = FEW, many: int = MANY) -> dict[str, float]:
    less, more = counted(kind, few), counted(kind, many)
    return {name: (more[name] - less[name]) / (many - few) for name in more}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="figures for a program")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed")
    if unknown := set(options.kinds) - KINDS.keys():
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    figures = {kind: per_message(kind) for kind in options.kinds or KINDS}
    if options.json:
        print(json.dumps(figures))
        return
    for kind, figure in figures.items():
        print(f"{KINDS[kind]}: " + ", ".join(f"{value:,.2f} {name}" for name, value in figure.items()))


if __name__ == "__main__":
    main()
