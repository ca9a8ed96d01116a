"""The program of both role processes: `python -m bench.worker_main server|client SETUP`, SETUP being a JSON object.

    family      "tcp" or "unix": what the server listens on
    cpus        the CPUs this process may run on, null for all
    fastsock    the keyword arguments of `fastsock.patch()`, null in a kernel role, which never loads it
    expect      where connections have to be: "ring", "tcp" (patched, but the peer is foreign), "kernel"
                (unpatched), null (patched, either path)

A role reports one JSON object per line on its standard output. The server says its address, then one line per
sample; the client takes one order per line from its standard input and answers with one line.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

from bench import loops
from bench.target import import_fastsock
from bench.worker import BenchError, Role

PR_SET_PDEATHSIG = 1  # prctl(2)


def serve(role: Role, family: str) -> None:
    if family == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0fastsock-bench-{os.getpid()}")
        address: Any = listener.getsockname().decode()
    else:
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
    listener.listen(128)
    role.say({"address": address})
    while True:
        report = loops.serve(listener, role)
        role.say({**report, **role.findings()})


def drive(role: Role) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        report = loops.drive(order.pop("address"), order, role)
        role.say({**report, **role.findings()})


def main() -> None:
    kind, setup = sys.argv[1], json.loads(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no role outlives the harness
    if setup["cpus"]:
        os.sched_setaffinity(0, setup["cpus"])
    role = Role(setup)
    try:
        if role.settings is not None:
            import_fastsock().patch(**role.settings)
        if kind == "server":
            serve(role, setup["family"])
        else:
            drive(role)
    except (BenchError, OSError, ImportError) as problem:
        role.say({"problem": f"{type(problem).__name__}: {problem}"})
        raise


if __name__ == "__main__":
    main()
