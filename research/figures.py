"""What a figure is. No figure is measured here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from bench.turns import Line, Samples

Sample = dict[str, float]  # what one turn of a line gives: a value for each panel's key, and whatever else it counted
Table = dict[str, dict[str, list[float]]]  # line -> x -> a value for each run


@attrs.frozen
class Plan:
    """How much is measured. `size` picks the values of x: "full", "quick", or "least" for tests."""

    size: str = "full"
    runs: int = 5
    seconds: float = 0.25  # of timed work for each sample

    @classmethod
    def named(cls, size: str, runs: int | None = None) -> Plan:
        plan = {"full": cls(), "quick": cls("quick", 3, 0.05), "least": cls("least", 1, 0.01)}[size]
        return attrs.evolve(plan, runs=runs or plan.runs)


@attrs.frozen
class Panel:
    """One pair of axes."""

    key: str
    label: str
    lower_is_better: bool = True
    log: bool = True
    derive: Callable[[Samples], Table] | None = None
    """Makes the panel's lines of the samples, instead of reading `key` off them."""
    xlabel: str = ""  # where it is not the figure's


@attrs.frozen
class Versus:
    """Two lines whose ratio the page tells: `ours` times better than `theirs`."""

    ours: str
    theirs: str
    goal: float | None = None  # the ratio that is to be reached at `at`, the paper's own
    at: Any = None  # None: where it is best, or worst if it is to be reached everywhere
    everywhere: bool = False
    keys: tuple[str, ...] = ()  # of the panels that it is about; empty: all


@attrs.frozen(eq=False)
class Figure:
    name: str
    paper: str
    title: str
    xlabel: str
    xs: dict[str, tuple[Any, ...]]  # by size of the plan
    lines: tuple[Line, ...]
    panels: tuple[Panel, ...]
    said: tuple[tuple[str, str], ...]
    """What the paper says: what, its number."""
    shows: str
    """What the figure shows here, in a sentence or two."""
    versus: tuple[Versus, ...] = ()
    slower: str = ""
    """Why our line is behind the kernel's where it is."""
    conclusion: Callable[[Samples], str] | None = None
    """What follows from the figures, in words that depend on them."""
    log_x: bool = True
    seconds: float | None = None  # instead of the plan's, for what needs longer than a ping-pong
    runs: int | None = None  # at most
    quick_runs: int | None = None  # at most, of a quick plan

    @property
    def full_name(self) -> str:
        return f"{self.paper}-{self.name}"


def values(samples: Samples, panel: Panel) -> Table:
    """What a panel shows."""
    if panel.derive is not None:
        return panel.derive(samples)
    table = {
        line: {x: [sample[panel.key] for sample in taken if panel.key in sample] for x, taken in by_x.items()}
        for line, by_x in samples.items()
    }
    return {line: {x: shown for x, shown in by_x.items() if shown} for line, by_x in table.items()}


def is_numeric(table: Table) -> bool:
    """Whether its x are numbers, not names of files or programs."""
    return all(is_number(x) for by_x in table.values() for x in by_x)


def is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
