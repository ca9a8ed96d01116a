"""The paper's guarantee experiments, from what each path does at each block size.

Kernel TCP chooses its block by its own curve, "fastsock" gets the block that TCP chose, and "fastsock with DR" (data
repartitioning) chooses by its own. So does any other line.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from statistics import median

from bench.turns import Samples
from research.figures import Table

TCP, RING, DR = "kernel TCP", "fastsock", "fastsock with DR"
POINTS = 7  # guarantees to choose for
ROUNDED = 0.99  # they are rounded: what meets them but for that meets them

Curve = dict[str, tuple[float, float]]  # block -> updates per second, latency of a partial update


def curve(samples: Samples, line: str) -> Curve:
    return {
        block: (median(one["updates"] for one in taken), median(one["latency"] for one in taken))
        for block, taken in samples.get(line, {}).items()
    }


def bound(samples: Samples) -> str:
    """How much faster a path could be that costs nothing, where the programs keep all processors busy."""
    at_most = {}
    for block, taken in samples.get(TCP, {}).items():
        user, system = (sum(one.get(kind, 0.0) for one in taken) for kind in ("user", "system"))
        if user > 0 and system > 0:
            at_most[block] = (user + system) / user
    if not at_most:
        return ""
    told = ", ".join(f"{ratio:.1f} at {block}" for block, ratio in at_most.items())
    return (
        "**At best:** where all processors are busy, a path that costs nothing at all leaves a complete update the user"
        " time of these programs. By the CPU time of kernel TCP's processes, such a path would be so many times faster"
        f" at the same block size: {told}."
    )


def spaced(values: Iterable[float], hardest: Iterable[float]) -> list[float]:
    """Guarantees from the least to the greatest of these, at equal ratios, and the hardest that each line can give."""
    low, high = min(values := list(values)), max(values)
    points = [low * (high / low) ** (n / (POINTS - 1)) for n in range(POINTS)]
    return sorted({float(f"{point:.3g}") for point in (*points, *hardest)})


def measured(samples: Samples, tcp: str) -> tuple[dict[str, Curve], Table]:
    """The curve of each line, and the table that is made of them, empty as yet."""
    curves = {line: curve(samples, line) for line in samples}
    return curves, {tcp: {}, RING: {}, DR: {}, **{line: {} for line in samples}}


def latency_at_rate(samples: Samples, tcp: str = TCP) -> Table:
    """Figs 24, 25: the latency of a partial update where so many complete updates a second are guaranteed."""
    curves, table = measured(samples, tcp)
    if not all(curves.values()):
        return table
    rates = [[updates for updates, _ in points.values()] for points in curves.values()]
    for rate in spaced(chain(*rates), map(max, rates)):
        x = f"{rate:g}"
        for line, points in curves.items():
            block = least_latency(points, rate)
            if block is None:
                continue
            table[DR if line == RING else line][x] = [points[block][1]]
            if line == tcp and curves[RING][block][0] >= rate * ROUNDED:
                table[RING][x] = [curves[RING][block][1]]
    return table


def least_latency(of: Curve, rate: float) -> str | None:
    able = [block for block, (updates, _) in of.items() if updates >= rate * ROUNDED]
    return min(able, key=lambda block: of[block][1], default=None)


def rate_at_latency(samples: Samples, tcp: str = TCP) -> Table:
    """Figs 26, 27: complete updates a second where a partial update may take so long at most (microseconds)."""
    curves, table = measured(samples, tcp)
    if not all(curves.values()):
        return table
    latencies = [[seconds * 1e6 for _, seconds in points.values()] for points in curves.values()]
    for latency in spaced(chain(*latencies), map(min, latencies)):
        x = f"{latency:g}"
        for line, points in curves.items():
            block = best_rate(points, latency)
            if block is None:
                continue
            table[DR if line == RING else line][x] = [points[block][0]]
            if line == tcp:
                table[RING][x] = [curves[RING][block][0]]
    return table


def best_rate(of: Curve, microseconds: float) -> str | None:
    able = [block for block, (_, latency) in of.items() if latency * 1e6 <= microseconds / ROUNDED]
    return max(able, key=lambda block: of[block][0], default=None)
