"""`./dev bench pictures`: the README's pictures, latency and throughput over message size, and the figures they show.

Measures the curves on kernel TCP, on a unix socket and on the ring, in turn, and writes `docs/curves.json`,
`docs/latency.svg` and `docs/throughput.svg`: about a minute, on a machine that does nothing else. `--redraw` draws
anew from the JSON file and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

import attrs

try:
    from rich.console import Console

    from bench.plot import write_picture
except ImportError:
    sys.exit("The pictures need rich and matplotlib: pip install '.[bench]'")

from bench.harness import measure_curves
from bench.report import fastsock_settings, machine
from bench.results import Curves
from bench.target import ROOT
from bench.workloads import Plan
from fastsock.tools.checks import remark

PICTURES = {"latency": "latency.svg", "bandwidth": "throughput.svg"}
"""Panel of the curves -> file."""
FIGURES = "curves.json"
FULL, QUICK = Plan(curve_runs=7, curve_seconds=0.1), Plan(curve_runs=1, curve_seconds=0.005)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench pictures", description=__doc__.splitlines()[0])
    parser.add_argument("--redraw", action="store_true", help="draw from the JSON file, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="shows that it works, and says nothing about speed")
    parser.add_argument("--directory", type=Path, help="where everything goes (default: docs; with --quick: bench/out)")
    options = parser.parse_args(arguments)
    if options.directory is None:
        options.directory = ROOT / ("bench/out" if options.quick else "docs")
    return options


def caption(document: dict[str, Any]) -> str:
    """What the figures were taken on."""
    told, runs = document["machine"], document["plan"]["curve_runs"]
    taken = f"{told['cpus_allowed']} CPUs, Linux {told['kernel']}, {told['python']}, fastsock {document['fastsock']}"
    return f"{taken}\nmedian and range of {runs} {'run' if runs == 1 else 'runs'}"


def read(path: Path) -> tuple[Curves, dict[str, Any]]:
    """The figures in the file, and the document. OSError, ValueError or KeyError if it is none of ours."""
    document = json.loads(path.read_text())
    panels = {
        panel: {
            name: {int(size): figures for size, figures in by_size.items()}
            for name, by_size in document["curves"][panel].items()
        }
        for panel in PICTURES
    }
    return Curves(panels, []), document


def draw(directory: Path) -> list[Path]:
    """Draws what is in the directory's JSON file; the files written. Errors as `read`."""
    curves, document = read(directory / FIGURES)
    written = []
    for panel, name in PICTURES.items():
        write_picture(directory / name, curves, panel, caption(document))
        written.append(directory / name)
    return written


def write_figures(directory: Path, curves: Curves, plan: Plan, described: dict[str, Any]) -> Path:
    """Half round trips in seconds and bytes a second: panel -> path -> message size -> the runs' figures."""
    document = {
        "machine": described,
        "fastsock": fastsock_settings()["version"],
        "plan": {"curve_runs": plan.curve_runs, "curve_seconds": plan.curve_seconds},
        "curves": attrs.asdict(curves)["panels"],
    }
    path = directory / FIGURES
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    progress = Console(stderr=True)
    if options.redraw:
        try:
            written = draw(options.directory)
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"{options.directory / FIGURES}: {type(error).__name__}: {error}")
    else:
        plan, described = QUICK if options.quick else FULL, machine()
        if said := remark(described["busy_before"]):
            progress.print(said, style="yellow")
        with progress.status("starting") as status:
            curves = measure_curves(plan, status.update)
        if curves.problems:
            sys.exit("not drawn: " + "; ".join(curves.problems))
        figures = write_figures(options.directory, curves, plan, described)
        written = [figures, *draw(options.directory)]
    for path in written:
        progress.print(f"wrote {path}", highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
