"""The groups of this network namespace that this process may look at (docs/messages.md): for `fastsock ss`."""

from __future__ import annotations

from typing import Any

from fastsock._native.messages import inspect
from fastsock.tools.columns import Column, lines

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
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        names = sorted({words[-1] for words in map(str.split, table) if words[-1].startswith(PREFIX)})
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for name in names:
        key, _, place = name.removeprefix(PREFIX).partition("/")
        if key in seen or not place.isdecimal():
            continue
        try:
            shown, state = inspect(name[1:].encode())
        except (OSError, ValueError):
            continue  # it has ended, or is another user's; or the next member answers
        seen.add(key)
        found[shown] = state
    return found


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
