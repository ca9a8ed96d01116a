"""`python -m bench.rivals`: fastsock next to other ways, in one run and in turns; renews the table of
docs/comparison.md.

The exit status is 0 also where one of the others cannot be measured here: its row says why.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import attrs

try:
    from rich.console import Console
except ImportError:
    sys.exit("The comparison needs rich and the others: pip install '.[rivals]'")

from bench.figures.store import session_here
from bench.figures.words import taken
from bench.harness import starter, timed
from bench.process import RunFailed
from bench.report import show, three_digits
from bench.results import times_better
from bench.target import ROOT
from bench.turns import Line, Start, Take, Taken, take_turns
from bench.worker_process import Setup
from bench.workloads import BANDWIDTH, CPU_PER_MESSAGE, HALF_ROUND_TRIP, REQUESTS, Reading, pingpong, stream
from fastsock.tools.checks import remark

PAGE = ROOT / "docs/comparison.md"
PLACE = re.compile(r"(<!-- rivals -->\n).*?(<!-- end -->)", re.DOTALL)
KERNEL, FASTSOCK = "kernel TCP", "fastsock"


@attrs.frozen
class Plan:
    runs: int = 7
    seconds: float = 0.5


# ---- the lines ---------------------------------------------------------------------------------------------

PINGPONG, STREAM = "ping-pong of 64 B, half a round trip", "stream of 64 KiB"
ORDERS = {PINGPONG: pingpong(64), STREAM: {**stream(64 << 10), "allocating": True}}
ECHO = "echo of 64 B"
READINGS = {PINGPONG: HALF_ROUND_TRIP, STREAM: BANDWIDTH, ECHO: REQUESTS}


def ask_for(package: str) -> None:
    """Raises `RunFailed` for a package that is named and is not here."""
    if package and find_spec(package) is None:
        too_old = package == "zuvloop" and sys.version_info < (3, 14)
        raise RunFailed("needs CPython 3.14" if too_old else "not installed")


def way(setup: Setup, loop: str = "", needs: str = "") -> Start:
    """Both ends start so; `loop` is who makes the connection, if not the sockets of the process."""

    def start(stack: Any, plan: Plan) -> Take:
        ask_for(needs)

        def order_of(x: str) -> dict[str, Any]:
            order = {**ORDERS[x], "what": ORDERS[x]["loop"]}
            return timed({**order, **({"loop": loop} if loop else {})}, plan.seconds)

        return starter((setup, setup), order_of)(stack, plan)

    return start


def echo(eventloop: str, setup: Setup, needs: str = "") -> Start:
    order = {"loop": "aio", "api": "protocol", "size": 64, "connections": 1, "eventloop": eventloop}

    def start(stack: Any, plan: Plan) -> Take:
        ask_for(needs)
        return starter((setup, setup), lambda _: timed(order, plan.seconds))(stack, plan)

    return start


PLAIN, RING, ELSEWHERE = Setup(expect="kernel"), Setup(fastsock={}, expect="ring"), Setup()
BLOCKING = (
    Line(KERNEL, way(PLAIN)),
    Line(FASTSOCK, way(RING)),
    Line("unix socket", way(Setup(family="unix", expect="kernel"))),
    Line("BPF sockmap", way(ELSEWHERE, "bench.rivals.sockmap:sockmap")),
    Line("iceoryx2", way(ELSEWHERE, "bench.rivals.channels:iceoryx2", "iceoryx2")),
    Line("pyzmq", way(ELSEWHERE, "bench.rivals.channels:zmq", "zmq")),
)
ASYNCIO = (
    Line("asyncio on kernel TCP", echo("asyncio", PLAIN)),
    Line("asyncio, fastsock", echo("asyncio", RING)),
    Line("asyncio, aiofastnet", echo("aiofastnet", PLAIN, "aiofastnet")),
    Line("uvloop on kernel TCP", echo("uvloop", PLAIN)),
    Line("uvloop, fastsock", echo("uvloop", RING)),
    Line("uvloop, aiofastnet", echo("aiofastnet uvloop", PLAIN, "aiofastnet")),
    Line("zuvloop on kernel TCP", echo("zuvloop", PLAIN, "zuvloop")),
)


# ---- the table ---------------------------------------------------------------------------------------------


def figures(samples: dict[str, dict[str, list[Any]]], x: str, key: str) -> dict[str, float]:
    """The median of each line that was measured."""
    return {name: median(one[key] for one in by_x[x]) for name, by_x in samples.items() if by_x.get(x)}


def table(lines: tuple[Line, ...], xs: tuple[str, ...], done: Taken) -> str:
    """A row for each line: medians, how many times better than the first line, and the CPU time of both ends."""
    rows = ["| | " + " | ".join(f"{x} | times | CPU us" for x in xs) + " |"]
    rows.append("| --- |" + " ---: | ---: | ---: |" * len(xs))
    for line in lines:
        cells = [line.name]
        if problem := done.problems.get(line.name):
            cells += ["not measured: " + problem.partition(": ")[2].split(";")[0], *["-"] * (3 * len(xs) - 1)]
        else:
            for x in xs:
                cells += cells_of(READINGS[x], done.samples[line.name][x], done.samples[lines[0].name].get(x, []))
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def cells_of(reading: Reading, ours: list[Any], first: list[Any]) -> list[str]:
    ratios = [times_better(reading, b[reading.key], a[reading.key]) for a, b in zip(ours, first, strict=False)]
    cpu = median(one["cpu_per_message"] for one in ours) * 1e6
    ratio = three_digits(median(ratios)) if ratios else "-"
    return [show(median(one[reading.key] for one in ours), reading.unit), ratio, three_digits(cpu)]


def ahead(xs: tuple[str, ...], done: Taken) -> list[str]:
    """Who is ahead of every line of fastsock, in each column."""
    said = []
    for x in xs:
        for words, reading in (("faster than", READINGS[x]), ("less CPU time than", CPU_PER_MESSAGE)):
            medians = figures(done.samples, x, reading.key)
            ours = [it for name, it in medians.items() if FASTSOCK in name]
            better = [
                name
                for name, it in medians.items()
                if FASTSOCK not in name and all(times_better(reading, one, it) > 1 for one in ours)
            ]
            said.append(f"- {x}, {words} fastsock: {', '.join(better) or 'none'}.")
    return said


# ---- the command -------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench rivals", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short turns: shows that it works, and says so")
    parser.add_argument("--runs", type=int, metavar="N", help=f"times that everything starts afresh ({Plan().runs})")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose table is renewed (%(default)s)")
    options = parser.parse_args(arguments)
    plan = Plan(2, 0.05) if options.quick else Plan()
    plan = attrs.evolve(plan, runs=options.runs or plan.runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    console, session = Console(stderr=True), session_here(options.quick)
    if busy := remark(session["busy_before"]):
        console.print(busy, style="yellow")
    parts, said = [], []
    with console.status("starting") as status:
        for lines, xs in ((BLOCKING, (PINGPONG, STREAM)), (ASYNCIO, (ECHO,))):
            done = take_turns(lines, xs, plan, plan.runs, status.update)
            parts.append(table(lines, xs, done))
            said += ahead(xs, done)
    text = "\n\n".join([*parts, "\n".join(said), f"{taken(session)}; median of {plan.runs} runs."])
    print(text)
    options.page.write_text(PLACE.sub(lambda found: f"{found[1]}{text}\n{found[2]}", options.page.read_text()))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
