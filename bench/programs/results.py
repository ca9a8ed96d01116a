"""What the slices of a row say: ratios with their quartiles, CPU time, humps, paths, verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median, pvariance, quantiles
from typing import Any

import attrs

from bench.programs.pair import AGAIN, FASTSOCK, PLAIN, Slice
from bench.programs.rows import CPU_GOALS, NULL, Row

PROBE = ["too few operations"]
"""Where the connection is that finds out whether the first server listens: no part of the program."""

FEWEST_FOR_HUMPS = 9
HUMP_SHARE = 0.2  # of the figures that a hump has at least
HUMP_DISTANCE = 1.2  # of the humps' means: less is not worth a word
HUMP_SEPARATION = 3.0  # Ashman's D (Ashman, Bird and Zepf 1994): above 2 the humps are apart; short samples need more


@attrs.frozen
class Quartiles:
    first: float
    median: float
    third: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Quartiles:
        if len(figures) < 2:
            return cls(figures[0], figures[0], figures[0])
        return cls(*quantiles(figures, n=4, method="inclusive"))


def humps(figures: Sequence[float]) -> tuple[float, float] | None:
    """The means of two humps, where the figures lie in two: then a median says little. Otherwise None."""
    logs = sorted(map(math.log, figures))
    if len(logs) < FEWEST_FOR_HUMPS:
        return None
    fewest = max(2, math.ceil(len(logs) * HUMP_SHARE))
    splits = [(logs[:at], logs[at:]) for at in range(fewest, len(logs) - fewest + 1)]
    low, high = min(splits, key=lambda split: sum(len(part) * pvariance(part) for part in split))
    apart, spread = fmean(high) - fmean(low), math.sqrt((pvariance(low) + pvariance(high)) / 2)
    if apart < math.log(HUMP_DISTANCE) or apart < HUMP_SEPARATION * spread:
        return None
    return math.exp(fmean(low)), math.exp(fmean(high))


@attrs.define
class Result:
    """A row in one placement. `slices[kind][i]` of all kinds were taken next to each other."""

    row: Row
    placement: str
    slices: dict[str, list[Slice]] = attrs.field(factory=dict)
    stats: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """`fastsock.stats()` of the programs of the last round."""
    calls: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Kind of pair -> system calls per operation: "server", "client", "by_name"."""
    notes: list[str] = attrs.field(factory=list)
    problem: str | None = None

    def ratios(self, kind: str) -> list[float]:
        """Operations per second, as a multiple of the plain pair's next to it."""
        pairs = zip(self.slices.get(kind, ()), self.slices.get(PLAIN, ()), strict=False)
        return [one.rate / plain.rate for one, plain in pairs]

    @property
    def measured(self) -> bool:
        return bool(self.ratios(FASTSOCK))

    def ratio(self, kind: str = FASTSOCK) -> Quartiles | None:
        ratios = self.ratios(kind)
        return Quartiles.of(ratios) if ratios else None

    def rate(self, kind: str) -> float:
        return median(one.rate for one in self.slices[kind])

    def cpu(self, kind: str, end: str = "cpu") -> float:
        """CPU seconds an operation, over all slices: of both ends, or "server_cpu", or "client_cpu"."""
        spent = sum(getattr(one, end) for one in self.slices[kind])
        return float(spent / sum(one.operations for one in self.slices[kind]))

    def system_share(self, kind: str) -> float | None:
        """The share of the CPU time of all slices that was spent in the kernel."""
        slices = self.slices.get(kind, ())
        spent = sum(one.cpu for one in slices)
        return min(1.0, sum(one.system_cpu for one in slices) / spent) if spent else None

    def cpu_ratio(self, kind: str = FASTSOCK) -> float | None:
        """CPU time an operation as a share of the plain pair's, over all slices."""
        if not self.ratios(kind):
            return None
        return self.cpu(kind) / self.cpu(PLAIN) if self.cpu(PLAIN) else None

    def cpu_ratios(self, kind: str) -> list[float]:
        """The same, of neighbouring slices."""
        pairs = zip(self.slices.get(kind, ()), self.slices.get(PLAIN, ()), strict=False)
        costs = [(one.cpu / one.operations, plain.cpu / plain.operations) for one, plain in pairs]
        return [one / plain for one, plain in costs if plain]

    @property
    def humps(self) -> dict[str, tuple[float, float]]:
        """Where the ratios, or a side's operations per second, lie in two humps."""
        figures = {kind: [one.rate for one in slices] for kind, slices in self.slices.items() if kind != AGAIN}
        found = {name: humps(values) for name, values in {"ratio": self.ratios(FASTSOCK), **figures}.items()}
        return {name: means for name, means in found.items() if means is not None}

    @property
    def path(self) -> str:
        """Where the connections were, as the ends' statistics have it, and why; those of processes that a program has
        started are not among them. Each connection counts once at each end."""
        ring = sum(stats["connections_ring"] for stats in self.stats.values())
        kernel: Counter[str] = Counter()
        for stats in self.stats.values():
            kernel.update(stats["fallback_reasons"])
        if "server0" in self.stats:
            kernel.subtract(PROBE)
            kernel = +kernel
        words = [f"ring {ring}"] if ring else []
        if kernel:
            (reason, _), *others = kernel.most_common()
            words.append(f"tcp {sum(kernel.values())} ({reason}{', ...' if others else ''})")
        return ", ".join(words) or "-"

    # ---- verdicts ----------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> float | None:
        """The ratio to reach; None where nothing is required, or where the null test is and did not run."""
        goal = self.row.goal(self.placement)
        if goal != NULL:
            return goal if isinstance(goal, float | int) else None
        null = self.ratio(AGAIN)
        return null.first if null else None

    @property
    def cpu_allowed(self) -> float | None:
        """The share of the plain pair's CPU time that is allowed; None where nothing is required. Where the goal is the
        null test, what that test's upper quartile takes is allowed as well: it is noise."""
        goal, allowed = self.row.goal(self.placement), CPU_GOALS[self.placement]
        if goal is None:
            return None
        noise = self.cpu_ratios(AGAIN) if goal == NULL else []
        return max(allowed, Quartiles.of(noise).third) if noise else allowed

    @property
    def missed(self) -> list[str]:
        """What the row fell short of: "ratio", "CPU time"."""
        ratio, cpu = self.ratio(), self.cpu_ratio()
        short = []
        if ratio is not None and self.wanted is not None and ratio.median < self.wanted:
            short.append("ratio")
        if cpu is not None and self.cpu_allowed is not None and cpu > self.cpu_allowed:
            short.append("CPU time")
        return short
