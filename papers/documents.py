"""The JSON of each figure: everything that was measured, on what, and with which settings. Times are in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from papers.figures import values
from papers.measure import Measured

Document = dict[str, Any]


def write_document(path: Path, measured: Measured, described: dict[str, Any], settings: dict[str, Any]) -> None:
    figure = measured.figure
    panels = {panel.key: {"unit": panel.label, "lines": values(measured.samples, panel)} for panel in figure.panels}
    document = {
        "figure": figure.full_name,
        "title": figure.title,
        "x": figure.xlabel,
        "machine": described,
        "fastsock": settings,
        "plan": attrs.asdict(measured.plan),
        "caption": caption(described, measured.plan.size, measured.plan.runs),
        "problems": measured.problems,
        "seconds": round(measured.seconds, 1),
        "panels": panels,
        "samples": measured.samples,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def caption(described: dict[str, Any], size: str, runs: int) -> str:
    on = "{cpus_allowed} CPUs ({cpu_model}), Linux {kernel}, {python}".format(**described)
    return f"{on}; median and range of {runs} runs{'' if size == 'full' else f', {size}'}"


def read_all(folder: Path) -> dict[str, Document]:
    """What has been measured so far, by the full name of the figure."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
