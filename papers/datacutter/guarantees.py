"""The paper's guarantee experiments, from what each path does at each block size.

"TCP" chooses its block by its own curve, "fastsock" gets the block that TCP chose, and "fastsock with DR" (data
repartitioning) chooses by its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from papers.figures import Samples, Table

TCP, RING, DR = "kernel TCP", "fastsock", "fastsock with DR"
POINTS = 7  # guarantees to choose for
ROUNDED = 0.99  # they are rounded: what meets them but for that meets them

Curve = dict[str, tuple[float, float]]  # block -> updates per second, latency of a partial update


def curve(samples: Samples, line: str) -> Curve:
    return {
        block: (median(one["updates"] for one in taken), median(one["latency"] for one in taken))
        for block, taken in samples.get(line, {}).items()
    }


def spaced(values: Iterable[float]) -> list[float]:
    """Guarantees from the least to the greatest of these, at equal ratios, rounded to three digits."""
    low, high = min(values := list(values)), max(values)
    if low == high:
        return [float(f"{low:.3g}")]
    return [float(f"{low * (high / low) ** (n / (POINTS - 1)):.3g}") for n in range(POINTS)]


def latency_at_rate(samples: Samples) -> Table:
    """Figs 24, 25: the latency of a partial update where so many complete updates a second are guaranteed."""
    tcp, ring = curve(samples, TCP), curve(samples, RING)
    table: Table = {TCP: {}, RING: {}, DR: {}}
    if not tcp or not ring:
        return table
    for rate in spaced([point[0] for point in (*tcp.values(), *ring.values())]):
        x = f"{rate:g}"
        block = least_latency(tcp, rate)
        if block is not None:
            table[TCP][x] = [tcp[block][1]]
            if ring[block][0] >= rate * ROUNDED:
                table[RING][x] = [ring[block][1]]
        own = least_latency(ring, rate)
        if own is not None:
            table[DR][x] = [ring[own][1]]
    return table


def least_latency(of: Curve, rate: float) -> str | None:
    able = [block for block, (updates, _) in of.items() if updates >= rate * ROUNDED]
    return min(able, key=lambda block: of[block][1], default=None)


def rate_at_latency(samples: Samples) -> Table:
    """Figs 26, 27: complete updates a second where a partial update may take so long at most (microseconds)."""
    tcp, ring = curve(samples, TCP), curve(samples, RING)
    table: Table = {TCP: {}, RING: {}, DR: {}}
    if not tcp or not ring:
        return table
    for latency in spaced([point[1] * 1e6 for point in (*tcp.values(), *ring.values())]):
        x = f"{latency:.0f}"
        block = best_rate(tcp, latency)
        if block is not None:
            table[TCP][x] = [tcp[block][0]]
            table[RING][x] = [ring[block][0]]
        own = best_rate(ring, latency)
        if own is not None:
            table[DR][x] = [ring[own][0]]
    return table


def best_rate(of: Curve, microseconds: float) -> str | None:
    able = [block for block, (_, latency) in of.items() if latency * 1e6 <= microseconds / ROUNDED]
    return max(able, key=lambda block: of[block][0], default=None)
