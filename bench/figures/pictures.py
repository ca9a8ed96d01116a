"""The pictures of latency and throughput over message size."""

from __future__ import annotations

import hashlib
import json
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


def digest(document: dict[str, Any], panel: str) -> str:
    """Tells which figures and which caption a picture shows: it is in the picture."""
    shown = [document["curves"]["panels"][panel], caption(document)]
    return "sha256:" + hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def draw(directory: Path, document: dict[str, Any]) -> list[Path]:
    """Draws the curves of the document; the files written."""
    panels = {
        panel: {
            name: {int(size): figures for size, figures in by_size.items()}
            for name, by_size in document["curves"]["panels"][panel].items()
        }
        for panel in PICTURES
    }
    written = []
    for panel, name in PICTURES.items():
        write_picture(directory / name, Curves(panels, []), panel, caption(document), digest(document, panel))
        written.append(directory / name)
    return written
