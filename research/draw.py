"""The PNG of a figure: a line is the median of the runs, the band around it their range."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from bench.plot import show_size
from research.documents import Document
from research.figures import Figure, Table, is_numeric

COLOURS = ("#d55e00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#000000", "#999999")
MARKERS = "osD^vPX*"


def draw_all(folder: Path, figures: Iterable[Figure], documents: dict[str, Document]) -> None:
    """Draws those of which there are figures."""
    for figure in figures:
        if document := documents.get(figure.full_name):
            draw(folder / f"{figure.full_name}.png", figure, document["panels"], document["caption"])


def draw(path: Path, figure: Figure, panels: dict[str, Table], caption: str) -> None:
    count = len(figure.panels)
    drawn, axes = pyplot.subplots(1, count, figsize=(5.4 * count + 0.6, 4.4), layout="constrained", squeeze=False)
    for axis, panel in zip(axes[0], figure.panels, strict=True):
        table = panels.get(panel.key, {})
        if is_numeric(table):
            draw_lines(axis, figure, table)
        else:
            draw_bars(axis, table)
        axis.set(xlabel=panel.xlabel or figure.xlabel, ylabel=panel.label)
        if panel.log and table:
            axis.set_yscale("log")
            axis.yaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.grid(True, axis="y", alpha=0.35)
        if table:
            axis.legend(frameon=False, fontsize=7)
    drawn.suptitle(figure.title, fontsize=10)
    drawn.supxlabel(caption, fontsize=7, color="#555555")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=90)
    pyplot.close(drawn)


def style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def draw_lines(axis: Axes, figure: Figure, table: Table) -> None:
    every: set[float] = set()
    for number, (name, by_x) in enumerate(table.items()):
        xs = sorted(by_x, key=float)
        at = [float(x) for x in xs]
        every.update(at)
        axis.plot(at, [median(by_x[x]) for x in xs], label=name, markersize=4, linewidth=1.5, **style(number))
        axis.fill_between(
            at, [min(by_x[x]) for x in xs], [max(by_x[x]) for x in xs], color=style(number)["color"], alpha=0.15
        )
    if figure.log_x and every:
        axis.set_xscale("symlog", linthresh=1) if min(every) <= 0 else axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(sorted(every)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: show_size(value)))
        axis.tick_params(axis="x", labelsize=7, rotation=45)


def draw_bars(axis: Axes, table: Table) -> None:
    xs = list(dict.fromkeys(x for by_x in table.values() for x in by_x))
    width = 0.8 / max(len(table), 1)
    for number, (name, by_x) in enumerate(table.items()):
        at = [xs.index(x) + (number - (len(table) - 1) / 2) * width for x in by_x]
        middle = [median(figures) for figures in by_x.values()]
        below = [m - min(figures) for m, figures in zip(middle, by_x.values(), strict=True)]
        above = [max(figures) - m for m, figures in zip(middle, by_x.values(), strict=True)]
        axis.bar(at, middle, width, label=name, color=COLOURS[number % len(COLOURS)], yerr=[below, above], capsize=2)
    axis.set_xticks(range(len(xs)), xs, rotation=20, fontsize=7)
