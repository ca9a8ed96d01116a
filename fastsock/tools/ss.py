"""`fastsock ss`: lists the connections of all fastsock processes of this user, like ss(8), and groups."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import attrs

from fastsock.tools import groups, introspection
from fastsock.tools.columns import Column, left_out, lines

__all__ = ["COLUMNS", "show", "table"]

COLUMNS = (
    Column("STATE", "the kernel's state of the connection, as in ss(8)", right=False),
    Column("PATH", "ring: at least one direction is in shared memory; tcp: both are in the kernel", right=False),
    Column(
        "REASON",
        "ring: the directions that have moved; tcp: why it did not move (docs/reasons.md)",
        right=False,
        shortens=True,
    ),
    Column("RECV-Q", "received bytes that the program has not read", goes=1),
    Column("SEND-Q", "sent bytes that the kernel has not delivered; always 0 on the ring", goes=2),
    Column("CREDITS", "messages that this end may send before the other end must read / maximum", goes=3),
    Column("MSG-OUT", "messages sent on the ring: small sends share one, large sends need several", goes=5),
    Column("MSG-IN", "messages received on the ring", goes=4),
    Column("RUNG", "times that this end woke the sleeping other end, by a system call", goes=7),
    Column("POLLS", "waits that polled memory first, with or without success", goes=8),
    Column("LOCAL", "address and port of this end", right=False, shortens=True),
    Column("PEER", "address and port of the other end", right=False, shortens=True),
    Column("PID", "the process of this end"),
    Column("PEER-PID", "the process of the other end, if it uses fastsock", goes=6),
    Column(
        "MARKS",
        "loop: an event loop handles the connection; sleeps: the program waits for bytes; full: it waits for room; "
        "left: the connection goes back to the kernel",
        right=False,
        goes=9,
    ),
)
LINKS = (
    Column("PID", "the process"),
    Column("PEER-PID", "the process that it has regions in common with"),
    Column("USER", "whose that process is", right=False, shortens=True),
    Column("IN-USE", "regions of connections"),
    Column("PARKED", "regions that wait for the next connection"),
    Column("BYTES", "what of these counts against the setting memory_cap"),
    Column("MADE", "connections that have moved, so far"),
    Column("PEER", "the other process's command", right=False, shortens=True),
)
LONGEST = 120
"""Characters of a command line to print."""


def show(pids: set[int] | None, as_json: bool, links: bool = False) -> int:
    """Prints the connections, or the links, on a terminal in lines that fit. Returns 1 if `pids` are given and none of
    them answered, else 0. Raises OSError if processes cannot be queried."""
    processes = [*introspection.query(pids), *introspection.unmet(pids)]
    processes.sort(key=lambda process: process.pid)
    if as_json:
        print(json.dumps([attrs.asdict(process) for process in processes], indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        shown = groups.table(groups.query(), width) if pids is None and not links else []
        parts = [table(processes, width, links) if processes or not shown else [], shown]
        print("\n\n".join("\n".join(part) for part in parts if part))
    return int(pids is not None and not processes)


def table(processes: Sequence[introspection.Process], width: int | None = None, links: bool = False) -> list[str]:
    """Returns the lines of the table, of at most `width` characters: processes, then their connections, or links."""
    if not processes:
        return textwrap.wrap("none of your processes in this network namespace uses fastsock", width or 80)
    columns = LINKS if links else COLUMNS
    rows = [line for process in processes for line in (_links(process) if links else _ends(process))]
    heads = [line for process in processes for line in _head(process, width)]
    missing = left_out(columns, rows, width) if rows else []
    note = f"({', '.join(missing)}: in a wider terminal, or with fastsock ss | cat)" if missing else ""
    return heads + (lines(columns, rows, width) if rows else []) + textwrap.wrap(note, width or 80)


def _head(process: introspection.Process, width: int | None) -> list[str]:
    """Returns a process's own lines: its command, and a remark if it uses another version of the protocol."""
    own = f"{process.pid}  {process.command[:LONGEST]}"[:width]
    if process.protocol == introspection.VERSION:
        return [own]
    remark = f"protocol version {process.protocol}, not {introspection.VERSION}: use its installation's fastsock ss"
    return [own, *textwrap.wrap(remark, width or LONGEST, initial_indent="    ", subsequent_indent="    ")]


def _ends(process: introspection.Process) -> list[tuple[str, ...]]:
    return [row(process, end) for end in process.connections]


def _links(process: introspection.Process) -> list[tuple[str, ...]]:
    return [
        (
            str(process.pid),
            str(link.peer_pid or "-"),
            "-" if link.user is None else introspection.user_name(link.user),
            *map(str, (link.in_use, link.parked, link.bytes, link.made)),
            link.peer[:LONGEST],
        )
        for link in process.links
    ]


def row(process: introspection.Process, end: introspection.Connection) -> tuple[str, ...]:
    """Returns the cells of a connection end."""

    def counted(*names: str) -> str:
        return str(sum(end.counters[name] for name in names)) if end.counters else "-"

    cells: tuple[Any, ...] = (
        end.state,
        end.path,
        end.reason,
        end.receive_queue,
        end.send_queue,
        "-" if end.credits is None else f"{end.credits}/{end.window}",
        counted("messages_sent"),
        counted("messages_received"),
        counted("doorbells_rung"),
        counted("polls_paid", "polls_unpaid"),
        end.local,
        end.peer,
        process.pid,
        end.peer_pid or "-",
        ",".join(end.marks) or "-",
    )
    return tuple(str(cell) for cell in cells)
