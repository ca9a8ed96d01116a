"""`./dev bench figures`: measures what the documents publish, and renews the documents.

The exit status is 1 if something could not be measured: its earlier figures stay.
"""

from __future__ import annotations

import argparse
import signal
import sys
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import attrs

try:
    from rich.console import Console

    from bench.figures.pictures import PICTURES
except ImportError:
    sys.exit("The figures need rich, matplotlib and the libraries of the programs: pip install '.[bench]'")

from bench import harness, workloads
from bench.figures import documents, store
from bench.programs import plan, show
from bench.programs.__main__ import let_programs_hear_interrupts, scratch
from bench.programs.measure import measure
from bench.programs.table import ROWS
from bench.target import ROOT
from bench.workloads import WORKS
from fastsock.tools.checks import remark

PROGRAMS, LOOPS, CURVES = plan.Plan(rounds=2, calls=False), workloads.Plan(runs=3), workloads.Plan(curve_runs=7)
QUICK = attrs.evolve(plan.Plan.quick(), calls=False), workloads.Plan.quick(), workloads.Plan.quick()
PICTURES_ROW = "pictures"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench figures", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="rows of `./dev bench programs`, works of `./dev bench`, or 'pictures'; patterns such as 'dask-*' "
        "(default: all). Other figures stay, with their dates",
    )
    parser.add_argument("--quick", action="store_true", help="short slices: shows that it works, and says so")
    parser.add_argument("--rounds", type=int, metavar="N", help="times that programs start afresh")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of a slice of a program")
    parser.add_argument("--redraw", action="store_true", help="measure nothing: renew the documents")
    parser.add_argument("--file", type=Path, default=store.FILE, help="the file of the figures (default: %(default)s)")
    options = parser.parse_args(arguments)
    every = [*(row.name for row in ROWS), *(work.name for work in WORKS), PICTURES_ROW]
    for name in options.names:
        if not any(fnmatchcase(one, name) for one in every):
            parser.error(f"nothing to measure is called {name}")
    if any(value is not None and value <= 0 for value in (options.rounds, options.seconds)):
        parser.error("--rounds and --seconds must be above 0")
    return options


def wanted(options: argparse.Namespace, name: str) -> bool:
    return not options.names or any(fnmatchcase(name, pattern) for pattern in options.names)


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    let_programs_hear_interrupts()
    progress, problems = Console(stderr=True), []
    document = store.read(options.file)
    if not options.redraw:
        with progress.status("starting") as status:
            session = store.begin(document, options.quick)
            if said := remark(document["sessions"][session]["busy_before"]):
                progress.print(said, style="yellow")
            problems = measure_all(options, document, session, progress, status.update)
    for path in documents.renew(document) if options.file == store.FILE else ():
        progress.print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}", highlight=False)
    for problem in problems:
        progress.print(f"not measured: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
    return int(bool(problems))


def measure_all(options: argparse.Namespace, document: Any, session: str, progress: Console, tell: Any) -> list[str]:
    """Measures what is wanted and writes the file after each row. Returns what could not be measured, and why."""
    programs, loops, curves = QUICK if options.quick else (PROGRAMS, LOOPS, CURVES)
    given = {name: value for name in ("rounds", "seconds") if (value := getattr(options, name)) is not None}
    programs = attrs.evolve(programs, **given)
    problems = []
    if wanted(options, PICTURES_ROW):
        taken = harness.measure_curves(curves, tell)
        problems += [f"the curve of {problem}" for problem in taken.problems]
        if not taken.problems:
            panels = {panel: taken.panels[panel] for panel in PICTURES}
            document["curves"] = {"session": session, "runs": curves.curve_runs, "panels": plain(panels)}
            store.write(options.file, document)
    todo = [(row, place) for row in ROWS if wanted(options, row.name) for place in row.placements]
    with scratch() as directory:
        for number, (row, placement) in enumerate(todo, 1):
            say = partial(numbered, tell, number, len(todo))
            result = measure(row, placement, programs, Path(directory), None, say)
            progress.print(f"{number}/{len(todo)} {show.line(result)}", markup=False, highlight=False, soft_wrap=True)
            if result.problem is not None or not result.measured:
                problems.append(f"{row.name} {placement}: {result.problem}")
            else:
                store.add_program(document, session, result)
                store.write(options.file, document)
    works = [work for work in WORKS if work.ratio is not None and wanted(options, work.name)]
    for one in harness.measure(works, loops, tell):
        if one.problem is not None:
            problems.append(f"{one.work.name}: {one.problem}")
        else:
            store.add_loop(document, session, one)
    store.write(options.file, document)
    return problems


def plain(panels: Any) -> Any:
    """The curves with the names that JSON gives to sizes."""
    return {
        panel: {path: {str(size): figures for size, figures in sizes.items()} for path, sizes in by_path.items()}
        for panel, by_path in panels.items()
    }


def numbered(tell: Any, number: int, of: int, word: str) -> None:
    tell(f"{number}/{of}  {word}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
