"""`python -m research [--quick] [NAME...]`: measures the figures, writes docs/papers.md and a page with all pictures.

NAME is a paper ("sovia") or a figure ("sovia-fig7"); without one, all. The exit status is 1 if a line has no figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
except ImportError:
    sys.exit("The papers' figures need rich, matplotlib and more: pip install '.[papers]'")

from bench.report import fastsock_settings, machine
from fastsock.tools.checks import remark
from research.catalogue import FIGURES, PAPERS, chosen
from research.documents import caption, read_medians, summary, write_medians, write_runs
from research.figures import Plan
from research.measure import measure
from research.page import figures_page, page

ROOT = Path(__file__).resolve().parent.parent


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m research", description=__doc__.partition("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", help="all in under 10 minutes")
    size.add_argument("--least", dest="size", action="store_const", const="least", help="the smallest sizes, for tests")
    parser.add_argument("--runs", type=int, help="of each line at each x, at most (5; 3 with --quick)")
    parser.add_argument("--list", action="store_true", help="the names, and nothing else")
    parser.add_argument("--page", action="store_true", help="measure nothing: only the pages, from medians.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="of papers.md and papers/medians.json (docs)")
    parser.add_argument("--raw", type=Path, default=ROOT / "build/papers", help="where all runs and pictures go")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a paper or a figure: see --list")
    options = parser.parse_args(arguments)
    try:
        options.figures = chosen(options.names)
    except ValueError as wrong:
        parser.error(str(wrong))
    return options


def main() -> int:
    from research.draw import draw_all  # matplotlib takes a while

    options = parse()
    if options.list:
        for paper in PAPERS:
            print(paper.name, *(f"  {figure.full_name}" for figure in paper.figures), sep="\n")
        return 0
    medians = options.out / "papers" / "medians.json"
    documents = read_medians(medians)
    console = Console(stderr=True)
    problems: dict[str, str] = {}
    if not options.page:
        plan, described, settings = Plan.named(options.size or "full", options.runs), machine(), fastsock_settings()
        if said := remark(described["busy_before"]):
            console.print(said, style="yellow")
        columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=len(options.figures))
            for figure in options.figures:
                measured = measure(figure, plan, lambda text: progress.update(task, description=text))
                write_runs(options.raw / f"{figure.full_name}.json", measured, described, settings)
                on = caption(described, measured.plan.size, measured.plan.runs)
                documents[figure.full_name] = summary(figure, measured.samples, on, measured.problems)
                write_medians(medians, documents)
                problems.update({f"{figure.full_name}, {line}": why for line, why in measured.problems.items()})
                progress.advance(task)
    draw_all(options.raw / "papers", options.figures if not options.page else FIGURES, documents)
    (options.raw / "papers-figures.md").write_text(figures_page(PAPERS, documents))
    (options.out / "papers.md").write_text(page(PAPERS, documents))
    for where, why in problems.items():
        console.print(f"INVALID  {where}: {why}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes of figures end with it
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
