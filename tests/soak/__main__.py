"""The command line of chaos: see docs/testing.md."""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

from tests.soak.driver import Driver
from tests.soak.plan import KINDS, Features
from tests.soak.processes import end_when_told


def names(text: str) -> list[str]:
    """Programs by name: "kind" or "kind/program"."""
    chosen = text.split(",")
    for name in chosen:
        kind, _, program = name.partition("/")
        if kind not in KINDS or (program and program not in KINDS[kind]):
            raise argparse.ArgumentTypeError(f"no such program: {name}")
    return chosen


def pair(text: str) -> list[str]:
    """Kinds of the client and the server."""
    kinds = text.split(",")
    if len(kinds) != 2 or not set(kinds) <= KINDS.keys():
        raise argparse.ArgumentTypeError(f"CLIENT,SERVER, each one of {', '.join(KINDS)}")
    return kinds


def options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev chaos", description="Ordinary programs, random calls, random kills.")
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="how long connections are made (default 60)")
    add("--seed", type=int, default=random.randrange(1_000_000), help="what the programs draw their choices from")
    add("--clients", type=int, default=6, help="client processes (default 6)")
    add("--lanes", type=int, default=3, help="connections of a client at a time (default 3)")
    add("--pace", type=float, default=1.0, help="seconds between two faults, on average (default 1)")
    add("--eager", action="store_true", help="move_after=0 and _meeting_ms=20 in all processes")
    add("--default", action="store_true", help="default settings in all processes (neither: drawn for each process)")
    add("--programs", type=names, default=[], metavar="NAME,...", help="only these: KIND or KIND/PROGRAM")
    add("--kinds", type=pair, metavar="CLIENT,SERVER", help="only this pairing of kinds")
    add("--key", type=int, help="each connection is the one with this key (give --kinds too)")
    add("--no-kill", dest="kill", action="store_false", help="nobody is killed")
    add("--no-fork", dest="fork", action="store_false", help="no program forks")
    add("--no-urgent", dest="urgent", action="store_false", help="no program sends an urgent byte")
    add("--no-faults", dest="faults", action="store_false", help="the driver does nothing at all to the processes")
    add("--plain", action="store_true", help="kernel TCP, for comparison")
    add("--containers", action="store_true", help="clients and servers in a container each, on a bridge (needs root)")
    add("--one-cpu", action="store_true", help="all processes on one processor")
    add("--size", type=int, default=Features.size, help="bytes of a connection's largest piece, at most")
    add("--json", type=Path, metavar="FILE", help="a line of numbers is added to this file at the end")
    add("--most", type=int, default=20, help="findings after which a run ends (default 20)")
    add("--out", metavar="DIRECTORY", help="where reports are left (default: a new one, removed if nothing was found)")
    return parser.parse_args(words)


def main() -> int:
    chosen = options(sys.argv[1:])
    end_when_told()
    if chosen.containers and os.geteuid() != 0:
        print("chaos: nothing was tried: only root makes these containers")
        return 0
    if chosen.one_cpu:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return Driver(chosen).carry_out()


if __name__ == "__main__":
    sys.exit(main())
