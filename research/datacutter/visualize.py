"""The visualization server of examples/filters, asked as the paper asks: prints one JSON object.

    sweep    seconds of a complete update (all blocks) and of a partial one (one block); CPU time of a complete one
    mix      mean response time of queries of which a share is complete, the others zoom into 4 blocks
    balance  seconds that a fast copy waits in a unit of work while one copy is slower by a factor

An ordinary program; it does not know about fastsock.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/filters"))

from pipeline import Pipeline, Stage

SHARES = (0, 20, 40, 60, 80, 100)  # per cent of the queries that are complete updates
QUERIES = 10
ZOOM = 4
STAGES = ("repository", "transform", "transform")  # and the client, which visualizes


def place(pipeline: Pipeline, cpus: list[int]) -> None:
    """Confines the filters to CPUs in the order of their start (the last filter is the first), and the client to the
    last one: what the papers' hosts did. For filters on kernel TCP, which are all there by now."""
    for pid, cpu in zip([*(process.pid for process in pipeline.processes), os.getpid()], cpus, strict=True):
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {cpu})


def warm(pipeline: Pipeline) -> None:
    for number in range(30):
        pipeline.query(range(number, number + 1), 64)


def sweep(pipeline: Pipeline, blocks: int, seconds: float) -> dict[str, float]:
    warm(pipeline)
    complete = []
    before = cpu_seconds(pipeline)
    until = time.perf_counter() + seconds
    while len(complete) < 2 or time.perf_counter() < until:
        complete.append(pipeline.query(range(blocks)))
    user, system = ((now - then) / len(complete) for now, then in zip(cpu_seconds(pipeline), before, strict=True))
    partial = [pipeline.query(range(number, number + 1)) for number in range(100)]
    return {"complete": median(complete), "latency": median(partial), "updates": 1 / median(complete),
            "user": user, "system": system}  # fmt: skip


def cpu_seconds(pipeline: Pipeline) -> tuple[float, float]:
    """User and system time of the filters and of this process."""
    user, system, *_ = os.times()
    for process in pipeline.processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[11]) / os.sysconf("SC_CLK_TCK")
        system += int(fields[12]) / os.sysconf("SC_CLK_TCK")
    return user, system


def mix(pipeline: Pipeline, blocks: int) -> dict[str, float]:
    warm(pipeline)
    answers = {}
    shares = SHARES if blocks > ZOOM else SHARES[-1:]  # every query needs all blocks
    for share in shares:
        seconds = []
        for query in range(QUERIES):
            complete = (query + 1) * share // 100 > query * share // 100
            seconds.append(pipeline.query(range(blocks if complete else min(ZOOM, blocks))))
        answers[str(share)] = mean(seconds)
    return answers if len(shares) > 1 else dict.fromkeys(map(str, SHARES), answers[str(SHARES[-1])])


def balance(pipeline: Pipeline, blocks: int, copies: int) -> dict[str, float]:
    warm(pipeline)
    wasted, whole = [], []
    for _ in range(3):
        whole.append(pipeline.query(range(blocks)))
        wasted.append(mean(whole[-1] - pipeline.reports[copy] for copy in range(copies - 1)))
    return {"wasted": median(wasted), "seconds": median(whole)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=("sweep", "mix", "balance"))
    parser.add_argument("--image", type=int, default=16 << 20)
    parser.add_argument("--block", type=int, required=True)
    parser.add_argument("--nanoseconds", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--filters", type=int, default=len(STAGES), help="in front of the client")
    parser.add_argument("--cpus", type=int, nargs="*", default=(), help="one for each filter, and one for the client")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--schedule", default="round-robin")
    options = parser.parse_args()
    blocks = max(1, options.image // options.block)
    if options.kind == "balance":
        uneven = Stage("transform", options.copies, options.nanoseconds, options.slow, waits=True)
        stages = [Stage("repository"), uneven]
    else:
        stages = [Stage(name, options.copies, options.nanoseconds) for name in STAGES[: options.filters]]
    with Pipeline(stages, options.block, options.schedule) as pipeline:
        if options.cpus:
            place(pipeline, options.cpus)
        report: dict[str, Any]
        if options.kind == "sweep":
            report = sweep(pipeline, blocks, options.seconds)
        elif options.kind == "mix":
            report = mix(pipeline, blocks)
        else:
            report = balance(pipeline, blocks, options.copies)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
