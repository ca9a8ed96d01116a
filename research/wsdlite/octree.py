"""Gravity by an octree (Barnes, Hut: A hierarchical O(N log N) force-calculation algorithm), in numpy.

The bodies are sorted by the path from the root to their leaf, so that a cell is a run of them at any level. Pairs of
body and cell are looked at level by level: a cell that is far enough stands for its bodies, another is opened.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Level = tuple[Array, Array, Array]  # of the cells of a level: their path, their first body, the one behind their last
LEVELS = 7
THETA = 0.7  # a cell is far if its side is less than so much of the distance
SOFT = 1e-4  # added to the squared distance
AT_ONCE = 1024  # bodies


def keys_of(places: Array, low: Array, side: float) -> Array:
    """The path of each body: three bits for each level."""
    cells = np.minimum(((places - low) / side * (1 << LEVELS)).astype(np.int64), (1 << LEVELS) - 1)
    keys = np.zeros(len(places), np.int64)
    for bit in range(LEVELS - 1, -1, -1):
        for axis in range(3):
            keys = keys * 2 + ((cells[:, axis] >> bit) & 1)
    return keys


def accelerations(places: Array, of: Array) -> Array:
    """What `places` do to the bodies at `of`, all of mass 1/n. The same for a body whoever else is in `of`."""
    low = places.min(axis=0)
    side = float((places.max(axis=0) - low).max()) * 1.0001
    keys = keys_of(places, low, side)
    order = np.argsort(keys, kind="stable")
    keys, sorted_places = keys[order], places[order]
    sums = np.vstack([np.zeros(3), np.cumsum(sorted_places, axis=0)])
    levels = []
    for level in range(LEVELS + 1):
        cells = keys >> 3 * (LEVELS - level)
        starts = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]])
        levels.append((cells[starts], starts, np.r_[starts[1:], len(keys)]))
    pulled = [one_chunk(of[first : first + AT_ONCE], levels, sums, side) for first in range(0, len(of), AT_ONCE)]
    return np.concatenate(pulled) / len(places)


def one_chunk(of: Array, levels: list[Level], sums: Array, side: float) -> Array:
    total = np.zeros_like(of)
    body, cell = np.arange(len(of)), np.zeros(len(of), np.int64)
    for level, (_, starts, ends) in enumerate(levels):
        count = (ends - starts)[cell]
        middle = (sums[ends[cell]] - sums[starts[cell]]) / count[:, None]
        away = middle - of[body]
        squared = np.einsum("ij,ij->i", away, away)
        taken = np.ones(len(body), bool) if level == LEVELS else (side / (1 << level)) ** 2 < THETA**2 * squared
        strength = count[taken] / (squared[taken] + SOFT) ** 1.5
        for axis in range(3):
            total[:, axis] += np.bincount(body[taken], strength * away[taken, axis], minlength=len(of))
        if level == LEVELS:
            break
        body, cell = opened(body[~taken], cell[~taken], levels[level], levels[level + 1])
    return total


def opened(body: Array, cell: Array, above: Level, below: Level) -> tuple[Array, Array]:
    """The pairs of each body with the cells below its cell."""
    first = np.searchsorted(below[1], above[1][cell])
    last = np.searchsorted(below[1], above[2][cell])
    count = last - first
    offsets = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(body, count), np.repeat(first, count) + offsets
