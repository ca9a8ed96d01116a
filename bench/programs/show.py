"""Results as a line, a table on the terminal, and JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.markup import escape
from rich.table import Table

from bench.programs.pair import AGAIN, FASTSOCK, PLAIN, Slice
from bench.programs.plan import Plan
from bench.programs.results import Quartiles, Result
from bench.programs.rows import CPU_GOALS, Goal
from bench.programs.table import ROWS
from bench.report import fastsock_settings, three_digits

# fmt: off
HEADINGS = (
    "program", "placed", "plain/s", "fastsock/s", "ratio", "null test", "CPU us", "CPU", "calls", "path",
    "goal", "reached",
)
# fmt: on


def quartiles(of: Quartiles | None) -> str:
    return f"{of.median:.2f} ({of.first:.2f}-{of.third:.2f})" if of else "-"


def goal(of: Goal) -> str:
    return "-" if of is None else of if isinstance(of, str) else f"{of:g}"


def verdict(result: Result) -> str:
    if result.problem is not None or not result.measured:
        return "INVALID"
    if result.missed:
        return "no: " + ", ".join(result.missed)
    return "yes" if result.wanted is not None else "-"


def calls(result: Result) -> str:
    """System calls per operation of both ends, plain and under fastsock."""
    if not {PLAIN, FASTSOCK} <= result.calls.keys():
        return "-"
    plain, fastsock = (result.calls[kind]["server"] + result.calls[kind]["client"] for kind in (PLAIN, FASTSOCK))
    return f"{three_digits(plain)} to {three_digits(fastsock)}"


def cells(result: Result) -> list[str]:
    if not result.measured:
        figures = ["-"] * 7
    else:
        cpu = f"{three_digits(result.cpu(PLAIN) * 1e6)} to {three_digits(result.cpu(FASTSOCK) * 1e6)}"
        share = result.cpu_ratio()
        figures = [
            f"{result.rate(PLAIN):,.0f}",
            f"{result.rate(FASTSOCK):,.0f}",
            quartiles(result.ratio()) + (" two humps" if result.humps else ""),
            quartiles(result.ratio(AGAIN)),
            cpu,
            "-" if share is None else f"{share:.2f}",
            calls(result),
        ]
    wanted = goal(result.row.goal(result.placement))
    return [result.row.program, result.placement, *figures, result.path, wanted, verdict(result)]


def line(result: Result) -> str:
    """One row in words, as soon as it is there."""
    if not result.measured:
        return f"{result.row.name} {result.placement}: INVALID"
    share = result.cpu_ratio()
    words = [
        f"{result.row.name} {result.placement}: {quartiles(result.ratio())}",
        f"CPU {share:.2f}" if share is not None else "CPU -",
        f"calls {calls(result)}",
        result.path,
        f"goal {goal(result.row.goal(result.placement))}: {verdict(result)}",
    ]
    if result.ratio(AGAIN) is not None:
        words.insert(1, f"null {quartiles(result.ratio(AGAIN))}")
    words += [f"two humps of {name}: {low:.2f} and {high:.2f}" for name, (low, high) in result.humps.items()]
    return ", ".join(words)


def table(results: Sequence[Result]) -> Table:
    drawn = Table(
        title="programs under fastsock next to the same ones without it",
        caption="ratio: operations per second, fastsock to plain, median (quartiles) of neighbouring slices; "
        "CPU: time per operation of both ends; calls: system calls per operation of both ends",
    )
    for heading in HEADINGS:
        words = heading in ("program", "placed", "path", "reached")
        drawn.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    for result in results:
        drawn.add_row(*map(escape, cells(result)))
    return drawn


def record(result: Result) -> dict[str, Any]:
    """Everything about a row, for JSON. Times are in seconds."""

    def side(kind: str) -> dict[str, Any] | None:
        if not result.slices.get(kind):
            return None
        return {
            "operations_per_second": result.rate(kind),
            "cpu_per_operation": {
                "both": result.cpu(kind),
                "server": result.cpu(kind, "server_cpu"),
                "client": result.cpu(kind, "client_cpu"),
            },
            "calls_per_operation": result.calls.get(kind),
            "slices": [attrs.asdict(one) for one in result.slices[kind]],
        }

    def spread(kind: str) -> dict[str, Any] | None:
        ratio = result.ratio(kind)
        return {**attrs.asdict(ratio), "of_slices": result.ratios(kind)} if ratio else None

    return {
        "name": result.row.name,
        "program": result.row.program,
        "placement": result.placement,
        "servers": [end.words for end in result.row.servers],
        "client": result.row.client.words,
        "goal": {"ratio": result.row.goal(result.placement), "cpu": CPU_GOALS[result.placement]},
        "wanted": {"ratio": result.wanted, "cpu": result.cpu_allowed},
        "ratio": spread(FASTSOCK),
        "cpu_ratio": result.cpu_ratio(),
        "null": {"ratio": spread(AGAIN), "cpu_ratio": result.cpu_ratio(AGAIN)},
        "two_humps": result.humps,
        "path": result.path,
        "stats": result.stats,
        "verdict": verdict(result),
        "missed": result.missed,
        "notes": result.notes,
        "problem": result.problem,
        "plain": side(PLAIN),
        "fastsock": side(FASTSOCK),
        "plain_again": side(AGAIN),
    }


def read_json(path: Path) -> list[Result]:
    """The results of an earlier session, of rows that are still declared."""
    if not path.exists():
        return []
    rows = {row.name: row for row in ROWS}
    sides = {PLAIN: "plain", FASTSOCK: "fastsock", AGAIN: "plain_again"}
    results = []
    for one in json.loads(path.read_text())["rows"]:
        if one["name"] not in rows:
            continue
        taken = {kind: one[side] for kind, side in sides.items() if one[side] is not None}
        results.append(
            Result(
                row=rows[one["name"]],
                placement=one["placement"],
                slices={kind: [Slice(**fields) for fields in side["slices"]] for kind, side in taken.items()},
                stats=one["stats"],
                calls={kind: calls for kind, side in taken.items() if (calls := side["calls_per_operation"])},
                notes=one["notes"],
                problem=one["problem"],
            )
        )
    return results


def write_json(path: Path, results: Sequence[Result], plan: Plan, described: dict[str, Any]) -> None:
    document = {
        "machine": described,
        "fastsock": fastsock_settings(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith("FASTSOCK_")},
        "plan": attrs.asdict(plan),
        "command": sys.argv[1:],
        "rows": [record(result) for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
