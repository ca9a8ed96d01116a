"""`python -m bench.programs`: ordinary programs under fastsock next to the same ones without it.

The exit status is 0 when every row was measured to its end, whether or not it reached its goal, and 1 when one was not.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import monotonic

import attrs

try:
    from rich.console import Console
    from rich.status import Status
except ImportError:
    sys.exit("The benchmarks need rich, and the libraries of the programs: pip install '.[bench]'")

from bench.programs import show
from bench.programs.calls import tool
from bench.programs.measure import measure
from bench.programs.plan import Plan
from bench.programs.rows import APART, FREE, Row
from bench.programs.table import ROWS
from bench.report import machine
from fastsock.tools.checks import remark

OUT = Path(__file__).resolve().parents[1] / "out"
TABLE_WIDTH = 200  # columns, where the output is not a terminal
BOTH = {"free": (FREE,), "apart": (APART,), "both": (FREE, APART)}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows, or patterns such as 'dask-*' (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and do nothing")
    parser.add_argument(
        "--quick", action="store_true", help="a few short slices: shows that it works, not how fast it is"
    )
    parser.add_argument(
        "--placement",
        choices=BOTH,
        default="both",
        help="left to the scheduler, a CPU for each end, or one after the other",
    )
    parser.add_argument("--goals", action="store_true", help="only rows that have a goal in the placement")
    parser.add_argument("--null", action="store_true", help="a null test for every row, not only where it is the goal")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"times that programs start afresh ({usual.rounds})")
    parser.add_argument("--slices", type=int, metavar="N", help=f"slices of each pair in a round ({usual.slices})")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"length of a slice ({usual.seconds:g})")
    parser.add_argument("--no-calls", action="store_true", help="do not count system calls")
    parser.add_argument("--keep", action="store_true", help="keep the rows in the JSON file that are not measured now")
    parser.add_argument("--json", type=Path, metavar="FILE", default=OUT / "programs.json", help="where the JSON goes")
    options = parser.parse_args(arguments)
    for name in options.names:
        if not any(fnmatchcase(row.name, name) for row in ROWS):
            parser.error(f"no row is called {name}; --list names them")
    if any(value is not None and value <= 0 for value in (options.rounds, options.slices, options.seconds)):
        parser.error("--rounds, --slices and --seconds must be above 0")
    return options


def planned(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    given = {name: getattr(options, name) for name in ("rounds", "slices", "seconds")}
    given = {name: value for name, value in given.items() if value is not None}
    return attrs.evolve(plan, **given, null=options.null, calls=not options.no_calls)


def chosen(options: argparse.Namespace) -> Iterator[tuple[Row, str]]:
    for row in ROWS:
        if not options.names or any(fnmatchcase(row.name, name) for name in options.names):
            for placement in BOTH[options.placement]:
                if placement in row.placements and (row.goal(placement) is not None or not options.goals):
                    yield row, placement


def main() -> int:
    options = parse()
    if options.list:
        print("\n".join(row.name for row in ROWS))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    let_programs_hear_interrupts()
    plan, described = planned(options), machine()
    tracer = tool() if plan.calls else None
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)
    if said := remark(described["busy_before"]):
        progress.print(said, style="yellow")
    if plan.calls and tracer != "perf":
        progress.print(f"system calls are counted by {tracer or 'nothing'}: perf is better", style="yellow")
    if described["cpus_allowed"] < 2:
        progress.print("one CPU only: nothing can have a CPU for each end", style="yellow")

    todo = list(chosen(options))
    doing = {(row.name, placement) for row, placement in todo}
    kept = show.read_json(options.json) if options.keep else []
    results = [result for result in kept if (result.row.name, result.placement) not in doing]
    begin = monotonic()
    with scratch() as directory, progress.status("starting") as status:
        for number, (row, placement) in enumerate(todo, 1):
            so_far = f"{number}/{len(todo)}  {monotonic() - begin:.0f} s  "
            tell = partial(update, status, so_far)
            result = measure(row, placement, plan, Path(directory), tracer, tell)
            results.append(result)
            progress.print(so_far + show.line(result), markup=False, highlight=False, soft_wrap=True)
            for note in (*result.notes, *filter(None, [result.problem])):
                progress.print(f"    {note}", markup=False, highlight=False, soft_wrap=True)
            show.write_json(options.json, results, plan, described)

    console.print(show.table(results))
    progress.print(f"wrote {options.json}", highlight=False)
    return 1 if any(result.problem for result in results) else 0


def let_programs_hear_interrupts() -> None:
    """A shell's background job ignores SIGINT. Its programs would inherit that, and each would be waited for in vain
    when it is told to end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def update(status: Status, so_far: str, word: str) -> None:
    status.update(so_far + word)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """In memory where that is possible: files are not what is measured."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
    return tempfile.TemporaryDirectory(prefix="fastsock-programs-", dir=memory if usable else None)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
