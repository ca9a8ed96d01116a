"""The pictures of latency and throughput over message size: the documentation site draws them when it is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures.words import taken
from bench.plot import write_picture
from bench.results import Curves

PICTURES = {"latency": "latency.svg", "bandwidth": "throughput.svg"}
"""Panel of the curves -> file."""


def caption(document: dict[str, Any]) -> str:
    """What the figures were taken on."""
    session, runs = document["sessions"][document["curves"]["session"]], document["curves"]["runs"]
    return f"{taken(session)}\nmedian and range of {runs} {'run' if runs == 1 else 'runs'}"


def draw(directory: Path, document: dict[str, Any]) -> list[Path]:
    """Draws the curves of the document; the files written."""
    written = []
    for panel, name in PICTURES.items():
        by_path = document["curves"]["panels"][panel]
        curves = {path: {int(size): taken for size, taken in sizes.items()} for path, sizes in by_path.items()}
        write_picture(directory / name, Curves({panel: curves}, []), panel, caption(document))
        written.append(directory / name)
    return written
