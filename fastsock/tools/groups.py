"""The groups of this network namespace, and of the `rendezvous_dir`, that this process may look at (docs/messages.md):
for `fastsock ss`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastsock import config
from fastsock._native.messages import inspect
from fastsock.tools.columns import Column, lines
from fastsock.tools.unix_streams import unix_table

__all__ = ["COLUMNS", "query", "table"]

PREFIX = "@fastsock/group/"
COLUMNS = (
    Column("GROUP", "the name of the group; a channel has one for each direction", right=False, shortens=True),
    Column("SLOW", "what a slow reader does: it loses the oldest messages, or holds the writers", right=False),
    Column("MEMBERS", "processes, or memberships of one"),
    Column("MESSAGES", "messages of the group so far"),
    Column("UNREAD", "those that its slowest member has not taken"),
    Column("LOST", "messages that its present members have lost"),
    Column("BYTES", "memory that it has taken, without its tables, / at most"),
)


def query() -> dict[str, dict[str, Any]]:
    """Returns the state of each group by its name."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    config.active().given.apply_trust()
    for key, name in _sockets():
        if key in seen:
            continue
        try:
            shown, state = inspect(name.encode())
        except (OSError, ValueError):
            continue  # it has ended, or is another user's, or no member's; or the next member answers
        seen.add(key)
        found[shown] = state
    return found


def _sockets() -> Iterator[tuple[str, str]]:
    """Names of sockets of members, or of their bells; before each what members of one group have in common, if it is
    known."""
    names = sorted({words[7] for words in unix_table() if words[7:] and words[7].startswith(PREFIX)})
    for name in names:
        key, _, place = name.removeprefix(PREFIX).partition("/")
        if place.isdecimal():
            yield key, name[1:]
    if folder := config.active().rendezvous_dir:
        for path in sorted(Path(folder).glob("grp-*")):
            yield str(path), str(path)


def table(groups: dict[str, dict[str, Any]], width: int | None = None) -> list[str]:
    """Returns the lines of the table, none without groups."""
    rows = [
        (
            "".join(each if each.isprintable() else " " for each in name),
            state["slow"],
            *(str(state[what]) for what in ("members", "messages", "unread", "lost")),
            f"{state['bytes']}/{state['limit']}",
        )
        for name, state in sorted(groups.items())
    ]
    return lines(COLUMNS, rows, width) if rows else []
