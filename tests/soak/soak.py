"""Chaos for hours: runs of some minutes, one after the other, with settings drawn from a seed, added up at the end.

    ./dev soak --hours 2 --out DIRECTORY

Runs differ in their settings (eager, default, drawn for each process), processors (one or all), sizes and pace. Most of
them are of short connections, because what goes wrong goes wrong where a connection begins, moves, leaves or ends. The
directory holds a line of numbers for each run (runs.jsonl), its output, and the reports of those with findings; a soak
that is started again in the same directory goes on where it was. See docs/testing.md.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.soak.processes import ROOT, end_when_told

RUN = 300.0
"""Seconds of a run."""


def draw(rng: random.Random) -> list[str]:
    """The options of a run."""
    modes: list[list[str]] = [["--eager"], ["--eager"], ["--default"], []]
    words = [*rng.choice(modes), "--pace", rng.choice(["0.15", "0.3"])]
    words += ["--size", rng.choice(["2000", "2000", "20000", "20000", "200000", "4000000"])]
    words += ["--clients", rng.choice(["6", "8"]), "--lanes", rng.choice(["3", "4"])]
    if rng.random() < 0.2:
        words.append("--one-cpu")
    return words


def total(runs: list[dict[str, float]], name: str) -> float:
    return sum(run[name] for run in runs)


def read(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tell(runs: list[dict[str, float]]) -> None:
    words = [f"{len(runs)} runs", f"{total(runs, 'seconds') / 3600:.2f} h", f"{total(runs, 'bytes') / 1e9:.1f} GB"]
    words += [f"{total(runs, name):,.0f} {name}" for name in ("connections", "moved", "kills", "faults", "findings")]
    print("soak: " + ", ".join(words), flush=True)


def carry_out(command: list[str], said: Path) -> int:
    """Its status. It is told to end if this process is: it has others to end."""
    with said.open("w") as output:
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT)
        try:
            return run.wait()
        except BaseException:
            run.terminate()
            run.wait()
            raise


def main() -> int:
    end_when_told()
    parser = argparse.ArgumentParser(prog="./dev soak", description="Chaos for hours.")
    parser.add_argument("--hours", type=float, default=2.0, help="how long, all runs together (default 2)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what the runs are drawn from")
    parser.add_argument("--out", type=Path, required=True, help="where numbers and reports are left")
    chosen = parser.parse_args()
    out: Path = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    numbers = out / "runs.jsonl"
    rng = random.Random(chosen.seed)
    until = time.monotonic() + chosen.hours * 3600
    while (rest := until - time.monotonic()) > 10:
        seed = rng.randrange(1_000_000_000)
        report = out / f"run-{seed}"
        words = [*draw(rng), "--seed", str(seed), "--seconds", str(round(min(RUN, rest)))]
        print("soak:", *words, flush=True)
        command = [sys.executable, "-m", "tests.soak", *words, "--out", str(report), "--json", str(numbers)]
        if carry_out(command, out / f"run-{seed}.txt") == 0:
            shutil.rmtree(report)
        tell(read(numbers))
    return int(total(read(numbers), "findings") > 0)


if __name__ == "__main__":
    sys.exit(main())
