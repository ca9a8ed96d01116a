"""The file of the published figures: a text line for each thing that was measured."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from bench.figures.wakeup import price
from bench.programs import results
from bench.programs.pair import FASTSOCK, PLAIN
from bench.report import fastsock_settings, machine, row
from bench.results import Result
from bench.target import ROOT

FILE = ROOT / "docs" / "figures.json"
Document = dict[str, Any]
"""The file: "sessions" by name, "programs" by row and placement, "loops" by work, "curves". What was measured names its
session."""


def read(path: Path = FILE) -> Document:
    """The document; an empty one if there is no file."""
    if not path.exists():
        return {"sessions": {}, "programs": {}, "loops": {}, "curves": None}
    document: Document = json.loads(path.read_text())
    return document


def write(path: Path, document: Document) -> None:
    """Writes the document, without the sessions of which nothing is left."""
    used = {one["session"] for one in measured(document)}
    kept = {name: told for name, told in document["sessions"].items() if name in used}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written({**document, "sessions": kept}, depth=3) + "\n")


def written(value: Any, depth: int, indent: str = "") -> str:
    """JSON with a text line for each entry of the outermost `depth` objects."""
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value)
    inner = indent + " "
    entries = (f"{inner}{json.dumps(key)}: {written(one, depth - 1, inner)}" for key, one in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def measured(document: Document) -> list[dict[str, Any]]:
    """Everything in the document that was measured in a session."""
    programs = [one for placements in document["programs"].values() for one in placements.values()]
    return [*programs, *document["loops"].values(), *filter(None, [document["curves"]])]


def session_here(quick: bool) -> dict[str, Any]:
    """This machine, today."""
    told = machine()
    return {
        "date": date.today().isoformat(),
        "machine": {name: told[name] for name in ("cpu_model", "cpus_allowed", "kernel", "python")},
        "wakeup_us": round(price() * 1e6, 1),
        "busy_before": round(told["busy_before"], 2),
        "quick": quick,
        "version": fastsock_settings()["version"],
    }


def begin(document: Document, quick: bool) -> str:
    """Adds a session. Returns its name."""
    session = session_here(quick)
    name = f"{session['date']} {len(document['sessions']) + 1}"
    while name in document["sessions"]:
        name += "+"
    document["sessions"][name] = session
    return name


def add_program(document: Document, session: str, result: results.Result) -> None:
    """Adds a row in a placement, in place of what there was."""
    quartiles = result.ratio()
    assert quartiles is not None

    def micros(kind: str) -> dict[str, float]:
        return {end: round(result.cpu(kind, f"{end}_cpu") * 1e6, 2) for end in ("server", "client")}

    document["programs"].setdefault(result.row.name, {})[result.placement] = {
        "session": session,
        "ratio": [round(one, 3) for one in (quartiles.first, quartiles.median, quartiles.third)],
        "per_second": {kind: round(result.rate(kind), 1) for kind in (PLAIN, FASTSOCK)},
        "cpu_us": {kind: micros(kind) for kind in (PLAIN, FASTSOCK)},
        "path": result.path,
    }


def add_loop(document: Document, session: str, result: Result) -> None:
    """Adds a work, in place of what there was."""
    told = row(result)
    document["loops"][result.work.name] = {
        "session": session,
        "title": told["work"],
        "unit": told["unit"],
        "kernel": told["kernel_tcp"]["median"],
        "fastsock": told["fastsock"]["median"],
        "ratio": {name: round(told["ratio"][name], 3) for name in ("min", "median", "max")},
    }
