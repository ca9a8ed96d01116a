"""`python -m bench`: measures fastsock next to kernel TCP, prints one table, writes JSON and a plot.

The exit status is 0 when every row is valid, whether or not it reached what is required, and 1 when one is
not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import attrs

try:
    from rich.console import Console
except ImportError:
    sys.exit("The benchmarks need rich and matplotlib: pip install '.[bench]'")

from bench.harness import measure, measure_curves
from bench.report import machine, placement, table, write_json
from bench.workloads import WORKS, Plan
from fastsock.tools.checks import remark

OUT = Path(__file__).resolve().parent / "out"
TABLE_WIDTH = 110  # columns, where the output is not a terminal


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short runs, under a minute altogether")
    parser.add_argument("--runs", type=int, metavar="N", help=f"pairs of runs per work (default {Plan().runs})")
    parser.add_argument(
        "--only",
        action="append",
        choices=[work.name for work in WORKS],
        metavar="NAME",
        help="this work only, without the curves; may be repeated: " + ", ".join(work.name for work in WORKS),
    )
    parser.add_argument("--curves", action="store_true", help="the curves over message size only")
    parser.add_argument("--json", type=Path, metavar="FILE", default=OUT / "bench.json", help="where the JSON goes")
    parser.add_argument("--plot", type=Path, metavar="FILE", default=OUT / "bench.png", help="where the plot goes")
    parser.add_argument("--no-plot", action="store_true", help="neither curves nor plot")
    options = parser.parse_args(arguments)
    if options.runs is not None and options.runs < 1:
        parser.error("--runs must be at least 1")
    if options.curves and (options.only or options.no_plot):
        parser.error("--curves excludes --only and --no-plot")
    return options


def main() -> int:
    options = parse()
    plan = Plan.quick() if options.quick else Plan()
    if options.runs is not None:
        plan = attrs.evolve(plan, runs=options.runs, curve_runs=options.runs)
    works = () if options.curves else [work for work in WORKS if not options.only or work.name in options.only]
    described = machine()
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)

    if said := remark(described["busy_before"]):
        progress.print(said, style="yellow")
    if described["cpus_allowed"] < 2:
        progress.print("one CPU only: works on two CPUs have to share it, and nothing polls", style="yellow")

    with progress.status("starting") as status:
        results = measure(works, plan, status.update)
        curves = None
        if not options.no_plot and not options.only:
            curves = measure_curves(plan, status.update)

    if results:
        console.print(table(results, plan))
        if (note := placement(results)) is not None:
            progress.print(note, highlight=False, soft_wrap=True)
    write_json(options.json, results, curves, plan, described)
    progress.print(f"wrote {options.json}", highlight=False)
    if curves is not None:
        from bench.plot import write_plot

        caption = f"{described['cpus_allowed']} CPUs, Linux {described['kernel']}, {described['python']}"
        write_plot(options.plot, curves, f"{caption}; median and range of {plan.curve_runs} runs")
        progress.print(f"wrote {options.plot}", highlight=False)

    problems = {f"{result.work.name}: {result.problem}" for result in results if result.problem is not None}
    problems.update(f"curve of {problem}" for problem in (curves.problems if curves is not None else ()))
    for problem in sorted(problems):
        progress.print(f"INVALID  {problem}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
