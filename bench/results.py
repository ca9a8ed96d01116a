"""Samples in pairs, and what they say: medians, ratios, verdicts."""

from __future__ import annotations

from statistics import median
from typing import Any

import attrs

from bench.workloads import Reading, Work

Sample = dict[str, Any]  # the client's report, with the server's under "server"


@attrs.frozen
class Pair:
    """A kernel sample and the fastsock sample taken right next to it."""

    kernel: Sample
    fastsock: Sample
    run: int  # samples of one run share their processes


@attrs.frozen
class Spread:
    """Median, minimum and maximum of some figures."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, figures: list[float]) -> Spread:
        return cls(median(figures), min(figures), max(figures))


@attrs.frozen
class Result:
    """One row: a work, its pairs, and the problem that makes the row invalid, if there is one."""

    work: Work
    pairs: list[Pair]
    problem: str | None = None

    def figures(self, side: str) -> list[float]:
        """All figures of one side, "kernel" or "fastsock", in the order taken."""
        return [getattr(pair, side)[self.work.reading.key] for pair in self.pairs]

    def cpu(self, side: str) -> float | None:
        """CPU seconds of both ends for an operation, the median; None where operations are not counted."""
        spent = [getattr(pair, side).get("cpu_per_message") for pair in self.pairs]
        return median(spent) if spent and None not in spent else None

    @property
    def ratios(self) -> list[float]:
        """How many times better fastsock was, pair by pair; empty for a work that has no ratio to reach."""
        if self.work.ratio is None:
            return []
        pairs = zip(self.figures("kernel"), self.figures("fastsock"), strict=True)
        return [times_better(self.work.reading, kernel, fastsock) for kernel, fastsock in pairs]

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches what is required; None when the row is invalid."""
        if self.problem is not None:
            return None
        if self.work.ratio is not None:
            return median(self.ratios) >= self.work.ratio
        assert self.work.limit is not None
        return median(self.figures("fastsock")) <= self.work.limit


def times_better(reading: Reading, kernel: float, fastsock: float) -> float:
    return kernel / fastsock if reading.lower_is_better else fastsock / kernel


@attrs.frozen
class Curves:
    """Figures over message size: panel ("latency", "bandwidth") -> path -> size -> figures of the runs."""

    panels: dict[str, dict[str, dict[int, list[float]]]]
    problems: list[str]
