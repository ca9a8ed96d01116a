"""Text tables whose columns have explanations."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import attrs

__all__ = ["Column", "explained", "lines"]

SHORTEST = 12
"""Minimum width of a shortened cell: more than a port needs."""


@attrs.frozen
class Column:
    """One column of a table."""

    head: str
    says: str
    """The explanation, for the command's help."""
    right: bool = True
    goes: int = 0
    """If lines are too long, columns above 0 are left out, the largest number first."""
    shortens: bool = False
    """If that is not enough, the middle of the cells is left out."""


def explained(title: str, columns: Sequence[Column]) -> str:
    """Returns the column heads with their explanations."""
    width = max(len(column.head) for column in columns) + 4
    said = [
        textwrap.fill(column.says, 100, initial_indent=f"  {column.head:{width - 2}}", subsequent_indent=" " * width)
        for column in columns
    ]
    return "\n".join([f"{title}:", *said])


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Returns the heads and the rows as aligned lines of at most `width` characters."""
    shown = _kept(columns, rows, width)
    if width is not None:
        shown = _shortened(shown, _width(shown) - width)
    padded = [
        [cell.rjust(_widest(cells)) if column.right else cell.ljust(_widest(cells)) for cell in cells]
        for column, cells in shown
    ]
    made = ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]
    return made if width is None else [line[:width] for line in made]


def left_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Returns the heads of the columns that `lines` leaves out."""
    kept = {column.head for column, _ in _kept(columns, rows, width)}
    return [column.head for column in columns if column.head not in kept]


def _kept(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> list[tuple[Column, list[str]]]:
    shown = [(column, [column.head, *cells]) for column, cells in zip(columns, _turned(columns, rows), strict=True)]
    while width is not None and _width(shown) > width and any(column.goes for column, _ in shown):
        shown.remove(max(shown, key=lambda one: one[0].goes))
    return shown


def _turned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[row[number] for row in rows] for number in range(len(columns))]


def _widest(cells: Sequence[str]) -> int:
    return max(map(len, cells))


def _width(shown: Sequence[tuple[Column, list[str]]]) -> int:
    return sum(_widest(cells) for _, cells in shown) + 2 * (len(shown) - 1)


def _shortened(shown: list[tuple[Column, list[str]]], excess: int) -> list[tuple[Column, list[str]]]:
    """Removes `excess` characters from the columns that can be shortened, from the widest first."""
    room = {column.head: _widest(cells) for column, cells in shown if column.shortens}
    for _ in range(max(excess, 0)):
        widest = max(room, key=lambda head: room[head], default=None)
        if widest is None or room[widest] <= SHORTEST:
            break
        room[widest] -= 1

    def cut(cell: str, size: int) -> str:
        kept = size - 2
        return cell if len(cell) <= size else f"{cell[: kept // 2]}..{cell[len(cell) - (kept - kept // 2) :]}"

    return [(one, [cut(cell, room.get(one.head, len(cell))) for cell in cells]) for one, cells in shown]
