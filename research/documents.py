"""What measuring a figure leaves behind. Times are in seconds.

`medians.json` beside the page has what the page and the pictures show: the median of each point and its range. One JSON
for each figure, which is not checked in, has everything that its runs gave, on what, and with which settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from bench.figures.store import written
from bench.turns import Samples
from research.figures import Figure, Table, values
from research.measure import Measured

DIGITS = 5  # of a number in medians.json
Document = dict[str, Any]


def summary(figure: Figure, samples: Samples, caption: str, problems: dict[str, str]) -> Document:
    """What the page and the picture of a figure are made of: for each panel, line and x the least figure, the median
    and the greatest, or the only one."""
    panels = {panel.key: shortened(values(samples, panel)) for panel in figure.panels}
    conclusion = figure.conclusion(samples) if figure.conclusion is not None else ""
    return {
        "caption": caption,
        "problems": problems,
        "stayed": stayed(samples),
        "conclusion": conclusion,
        "panels": panels,
    }


def shortened(table: Table) -> Table:
    return {
        line: {x: [rounded(figure) for figure in extent(figures)] for x, figures in by_x.items()}
        for line, by_x in table.items()
        if by_x
    }


def extent(figures: list[float]) -> list[float]:
    return [min(figures), median(figures), max(figures)] if len(figures) > 1 else figures


def rounded(figure: float) -> float:
    return float(f"{figure:.{DIGITS}g}")


def stayed(samples: Samples) -> list[str]:
    """The lines under fastsock of whose connections none moved, among those that count them."""
    moved = {
        line: [one["connections_moved"] for taken in by_x.values() for one in taken if "connections_moved" in one]
        for line, by_x in samples.items()
    }
    return [line for line, counts in moved.items() if counts and not any(counts)]


def caption(described: dict[str, Any], size: str, runs: int) -> str:
    on = "{cpus_allowed} CPUs ({cpu_model}), Linux {kernel}, {python}".format(**described)
    return f"{on}; median and range of {runs} runs{'' if size == 'full' else f', {size}'}"


def write_runs(path: Path, measured: Measured, described: dict[str, Any], settings: dict[str, Any]) -> None:
    """Writes everything that was measured of a figure."""
    document = {
        "figure": measured.figure.full_name,
        "title": measured.figure.title,
        "x": measured.figure.xlabel,
        "machine": described,
        "fastsock": settings,
        "plan": attrs.asdict(measured.plan),
        "problems": measured.problems,
        "seconds": round(measured.seconds, 1),
        "samples": measured.samples,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_medians(path: Path, documents: dict[str, Document]) -> None:
    """Writes the summaries of all figures: a text line for each line of a panel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written(dict(sorted(documents.items())), depth=4) + "\n")


def read_medians(path: Path) -> dict[str, Document]:
    """What has been measured so far, by the full name of the figure."""
    return json.loads(path.read_text()) if path.exists() else {}
