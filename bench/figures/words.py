"""Published figures as words and as tables."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from bench.programs.pair import FASTSOCK, PLAIN
from bench.programs.rows import APART, FREE, Row
from bench.report import show, three_digits

SAME = (0.97, 1.03)
"""Between these a ratio is noise."""

Document = dict[str, Any]
Measured = dict[str, Any]


def taken(session: dict[str, Any]) -> str:
    """Which kind of processor, which price of a wakeup, and when."""
    return taken_in([session])[0]


def taken_in(sessions: Iterable[dict[str, Any]]) -> list[str]:
    """The same for several sessions, which are told of at once where they differ in the price of a wakeup alone."""
    prices: dict[tuple[str, str], list[float]] = {}
    for session in sessions:
        told = session["machine"]
        said = f"{told['cpus_allowed']} CPUs of {told['cpu_model']}, Linux {told['kernel']}, {told['python']}"
        short = " (a trial run on a busy machine)" if session["quick"] or session["busy_before"] > 0.1 else ""
        prices.setdefault((said, f"{session['date']}{short}"), []).append(session["wakeup_us"])
    return [f"{said}, a wakeup costs {price_words(paid)} us, {when}" for (said, when), paid in prices.items()]


def price_words(paid: list[float]) -> str:
    least, most = three_digits(min(paid)), three_digits(max(paid))
    return least if least == most else f"{least} to {most}"


def times(ratio: float) -> str:
    return three_digits(ratio) if ratio < 10 else f"{ratio:.0f}"


def cpu(one: Measured, kind: str) -> float:
    """CPU time per operation of both ends, in microseconds."""
    return float(sum(one["cpu_us"][kind].values()))


def cpu_words(one: Measured) -> str:
    return f"{three_digits(cpu(one, PLAIN))} to {three_digits(cpu(one, FASTSOCK))}"


def ring(one: Measured) -> bool:
    return str(one["path"]).startswith("ring")


def why(row: Row, placements: dict[str, Measured]) -> str:
    """Why a row has a ratio below 1.0, or one that is noise; "" for other rows."""
    worst = min(placements.values(), key=lambda one: one["ratio"][1])
    if worst["ratio"][1] > SAME[1]:
        return ""
    if row.reason:
        return row.reason
    if not ring(worst) and "(" in worst["path"]:
        return "stays on kernel TCP: " + worst["path"].partition("(")[2].rstrip(")").removesuffix(", ...")
    if worst["ratio"][1] >= SAME[0]:
        return "the same within noise"
    if not ring(worst):
        return "stays on kernel TCP"
    more = cpu(worst, FASTSOCK) > cpu(worst, PLAIN)
    return "on the ring, with more CPU time: not explained yet" if more else "on the ring: not explained yet"


# ---- what the documents say ------------------------------------------------------------------------------------


def sessions(document: Document) -> str:
    """Where and when the figures of the tables were taken."""
    shown = [f"{told}." for told in taken_in(document["sessions"].values())]
    return "Taken on " + "\n\nand on ".join(shown) + "\n"


def program_cells(document: Document, row: Row) -> list[str]:
    """Ratio and CPU time, free and apart; "-" where it was not measured."""
    placements = document["programs"].get(row.name, {})
    cells = []
    for placement in (FREE, APART):
        one = placements.get(placement)
        cells += [times(one["ratio"][1]), cpu_words(one)] if one else ["-", "-"]
    return cells


def programs(document: Document, rows: list[Row]) -> str:
    """The table of performance.md: each row with its reason if it gains nothing."""
    lines = [
        "| program | free | CPU us | a CPU each | CPU us | why not more |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        if placements := document["programs"].get(row.name):
            lines.append("| " + " | ".join([row.program, *program_cells(document, row), why(row, placements)]) + " |")
    return "\n".join(lines) + "\n"


def chosen(document: Document, rows: dict[str, Row]) -> str:
    """The README's table: some rows, in the words given for them."""
    lines = ["| what | against the kernel | CPU time of both ends |", "| --- | ---: | ---: |"]
    dates = set()
    for title, row in rows.items():
        one = document["programs"].get(row.name, {}).get(FREE)
        if one is None:
            lines.append(f"| {title} | not measured yet | - |")
            continue
        dates.add(one["session"])
        lines.append(f"| {title} | {times(one['ratio'][1])} times | {cpu_words(one)} us |")
    lines += ["", *(f"{told}." for told in taken_in(document["sessions"][name] for name in sorted(dates)))]
    return "\n".join(lines) + "\n"


def recipe(document: Document, rows: list[Row]) -> str:
    """The rows of a recipe, and on what they were taken."""
    lines = ["| against kernel TCP | free | CPU us | a CPU each | CPU us |", "| --- | ---: | ---: | ---: | ---: |"]
    names: set[str] = set()
    for row in rows:
        lines.append("| " + " | ".join([row.program, *program_cells(document, row)]) + " |")
        names |= {one["session"] for one in document["programs"].get(row.name, {}).values()}
    told = [f"{said}." for said in taken_in(document["sessions"][name] for name in sorted(names))]
    return "\n".join([*lines, "", *(told or ["Not measured yet."])]) + "\n"


def loops(document: Document) -> str:
    """The table of our own loops."""
    lines = ["| loop | kernel TCP | fastsock | ratio | range |", "| --- | ---: | ---: | ---: | ---: |"]
    for one in document["loops"].values():
        ratio = one["ratio"]
        figures = [show(one["kernel"], one["unit"]), show(one["fastsock"], one["unit"]), times(ratio["median"])]
        figures.append(f"{times(ratio['min'])} to {times(ratio['max'])}")
        lines.append("| " + " | ".join([one["title"], *figures]) + " |")
    return "\n".join(lines) + "\n"


def curves(document: Document) -> str:
    """What the pictures show at two sizes."""
    panels = document["curves"]["panels"]

    def figure(panel: str, path: str, size: int) -> float:
        return float(median(panels[panel][path][str(size)]))

    tcp, us = figure("latency", "kernel TCP", 4), figure("latency", "fastsock ring", 4)
    stream, ours = figure("bandwidth", "kernel TCP", 65536), figure("bandwidth", "fastsock ring", 65536)
    told = [
        f"Half a round trip of 4 B takes {show(us, 's')} on the ring and {show(tcp, 's')} on kernel TCP",
        f"({times(tcp / us)} times). A stream of 64 KiB sends carries {show(ours, 'B/s')} and {show(stream, 'B/s')}",
        f"({times(ours / stream)} times).",
        f"{taken(document['sessions'][document['curves']['session']])}.",
    ]
    return "\n".join(told) + "\n"
