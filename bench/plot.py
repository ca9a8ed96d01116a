"""Latency and bandwidth over message size, as in the papers' micro-benchmark figures (SOVIA, figure 6)."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from bench.results import Curves
from bench.workloads import CURVE_PATHS, CURVE_SIZES

# Colour and marker belong to a path in both panels; the three colours stay apart for colour-blind eyes.
STYLES: dict[str, dict[str, Any]] = {
    "fastsock ring": {"color": "#d55e00", "marker": "o", "linewidth": 2.2, "zorder": 3},
    "kernel TCP": {"color": "#0072b2", "marker": "s", "linewidth": 1.6},
    "unix socket": {"color": "#009e73", "marker": "^", "linewidth": 1.6},
}
PANELS = {"latency": ("Latency", "half round trip, us", 1e6), "bandwidth": ("Bandwidth", "MB/s", 1e-6)}


def write_plot(path: Path, curves: Curves, caption: str) -> None:
    """Two panels with logarithmic axes; a line is the median of the runs, the band around it their range."""
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for axis, panel in zip(axes, PANELS, strict=True):
        draw_panel(axis, panel, curves)
    figure.supxlabel(caption, fontsize=8, color="#555555")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def write_picture(path: Path, curves: Curves, panel: str, caption: str) -> None:
    """One panel as SVG."""
    with pyplot.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure, axis = pyplot.subplots(figsize=(6.6, 4.2), layout="constrained")
        draw_panel(axis, panel, curves)
        figure.supxlabel(caption, fontsize=8, color="#555555")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        pyplot.close(figure)


def draw_panel(axis: Axes, panel: str, curves: Curves) -> None:
    title, label, scale = PANELS[panel]
    for name in CURVE_PATHS:
        if by_size := curves.panels[panel].get(name):
            scaled = {size: [figure * scale for figure in by_size[size]] for size in sorted(by_size)}
            draw(axis, name, scaled)
    axis.set(title=title, xlabel="message size, bytes", ylabel=label, xscale="log", yscale="log")
    axis.xaxis.set_major_locator(FixedLocator(CURVE_SIZES))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: show_size(size)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(True, which="major", alpha=0.35)
    axis.grid(True, which="minor", axis="y", alpha=0.12)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False)


def draw(axis: Axes, name: str, by_size: dict[int, list[float]]) -> None:
    sizes, figures = list(by_size), list(by_size.values())
    style = STYLES[name]
    axis.plot(sizes, [median(runs) for runs in figures], label=name, markersize=5, **style)
    axis.fill_between(sizes, list(map(min, figures)), list(map(max, figures)), color=style["color"], alpha=0.15)


def show_size(size: float) -> str:
    for scale, prefix in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size >= scale:
            return f"{size / scale:g} {prefix}"
    return f"{size:g}"
