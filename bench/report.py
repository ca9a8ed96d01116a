"""The table on the terminal and the JSON file."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table

from bench.placement import FREE
from bench.results import Curves, Result, Spread
from bench.target import import_fastsock
from bench.workloads import Plan, Work
from fastsock.tools.checks import busy

BUSY_SECONDS = 0.5
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def show(figure: float, unit: str) -> str:
    """A figure with its unit, three significant digits."""
    if unit == "s":
        return f"{three_digits(figure * 1e6)} us"
    if unit in ("KiB", "ticks"):
        return f"{figure:.3g} {unit}"
    scale, prefix = next((pair for pair in PREFIXES if figure >= pair[0]), PREFIXES[-1])
    return f"{three_digits(figure / scale)} {prefix}{unit}"


def three_digits(number: float) -> str:
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


def required(work: Work) -> str:
    if work.ratio is not None:
        return f"{work.ratio:g}x"
    if work.limit == 0:
        return f"0 {work.reading.unit}"
    return f"<= {work.limit:g} {work.reading.unit}"


def table(results: list[Result], plan: Plan) -> Table:
    """One row per work: medians of both sides, median ratio of the pairs, what is required, the verdict."""
    drawn = Table(
        title=f"fastsock next to kernel TCP, medians of {plan.runs} pairs of runs",
        caption="ratio: how many times better, median over the pairs; CPU: us of both ends for an operation",
    )
    for heading in ("work", "kernel TCP", "fastsock", "ratio", "CPU", "required", "reached"):
        words = heading in ("work", "reached")
        drawn.add_column(heading, justify="left" if words else "right", no_wrap=heading != "work")
    for result in results:
        unit = result.work.reading.unit
        cells = [result.work.title, "-", "-", "-", "-"]
        if result.problem is None:
            cells[1] = show(Spread.of(result.figures("kernel")).median, unit)
            cells[2] = show(Spread.of(result.figures("fastsock")).median, unit)
            if result.ratios:
                cells[3] = show_ratio(Spread.of(result.ratios).median, result.work)
            if None not in (cpu := [result.cpu(side) for side in ("kernel", "fastsock")]):
                cells[4] = " > ".join(three_digits(spent * 1e6) for spent in cpu)
        verdict = {True: "[green]yes[/]", False: "[red]no[/]", None: "[bold red]INVALID[/]"}[result.reached]
        drawn.add_row(*cells, required(result.work), verdict)
    return drawn


def show_ratio(ratio: float, work: Work) -> str:
    close = work.ratio is not None and work.ratio <= 1
    return f"{ratio:.3f}x" if close else f"{three_digits(ratio)}x"


def placement(results: list[Result]) -> str | None:
    """How often the scheduler, where it was left to it, had both ends on one CPU when a run ended."""
    shared: Counter[str] = Counter()
    runs = 0
    for result in results:
        if result.work.cpus == FREE and result.work.measured_by == "pairs":
            runs += len(result.pairs)
            for side in ("kernel", "fastsock"):
                shared[side] += sum(len(set(getattr(pair, side)["cpus"])) == 1 for pair in result.pairs)
    if not runs:
        return None
    return (
        f"Left to the scheduler, kernel TCP ended on one CPU in {shared['kernel']} of {runs}"
        f" runs, fastsock in {shared['fastsock']}. A ping-pong that sleeps is several times faster there."
    )


def machine() -> dict[str, Any]:
    """What the figures were taken on: nothing that identifies the host."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "cpu_model": models[0].partition(":")[2].strip() if models else platform.machine(),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load_average": os.getloadavg(),
        "busy_before": busy(BUSY_SECONDS),
    }


def fastsock_settings() -> dict[str, Any]:
    """The version and the settings of every ring run: a row names what is different for it."""
    try:
        installed = version("fastsock")
    except PackageNotFoundError:
        installed = "not installed"
    try:
        import_fastsock()
        settings = vars(import_module("fastsock.config").from_environment())
    except ImportError:  # every ring run has said so already
        settings = None
    return {"version": installed, "settings": settings}


def row(result: Result) -> dict[str, Any]:
    work = result.work

    def side(name: str) -> dict[str, Any]:
        figures = result.figures(name)
        spread = attrs.asdict(Spread.of(figures)) if figures else {}
        return {**spread, "figures": figures, "samples": [getattr(pair, name) for pair in result.pairs]}

    ratios = result.ratios
    return {
        "name": work.name,
        "work": work.title,
        "unit": work.reading.unit,
        "lower_is_better": work.reading.lower_is_better,
        "order": work.order,
        "kernel_order": work.kernel_order,
        "cpus": work.cpus,
        "settings": work.settings,
        "required": {"ratio": work.ratio, "limit": work.limit},
        "reached": result.reached,
        "problem": result.problem,
        "ratio": {**(attrs.asdict(Spread.of(ratios)) if ratios else {}), "of_pairs": ratios},
        "run_of_pair": [pair.run for pair in result.pairs],
        "kernel_tcp": side("kernel"),
        "fastsock": side("fastsock"),
    }


def write_json(path: Path, results: list[Result], curves: Curves | None, plan: Plan, described: dict[str, Any]) -> None:
    """Everything measured: samples, medians, spreads, the machine and the settings. Times are in seconds."""
    document = {
        "machine": described,
        "fastsock": fastsock_settings(),
        "plan": attrs.asdict(plan),
        "command": sys.argv[1:],
        "rows": [row(result) for result in results],
        "curves": attrs.asdict(curves) if curves is not None else None,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
