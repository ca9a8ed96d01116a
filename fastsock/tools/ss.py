"""`fastsock ss`: the connections of all fastsock processes of this user, like `ss`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from fastsock.tools import looking

__all__ = ["show", "table"]

HEADINGS = (
    "STATE", "PATH", "REASON", "RECV-Q", "SEND-Q", "CREDITS", "MSG-OUT", "MSG-IN", "RUNG", "POLLS", "LOCAL", "PEER",
    "PID", "PEER-PID", "MARKS",
)  # fmt: skip
LONGEST = 120
"""Characters of a command line that are shown."""
RIGHT = {"RECV-Q", "SEND-Q", "CREDITS", "MSG-OUT", "MSG-IN", "RUNG", "POLLS", "PID", "PEER-PID"}


def show(pids: set[int] | None, as_json: bool) -> int:
    """Prints them. 1 if `pids` are given and none of them answered, else 0. OSError if nobody can be asked."""
    processes = looking.look(pids)
    if as_json:
        print(json.dumps([attrs.asdict(process) for process in processes], indent=2))
    else:
        print("\n".join(table(processes)))
    return int(pids is not None and not processes)


def table(processes: Sequence[looking.Process]) -> list[str]:
    """The lines of the table: processes, then their connections."""
    if not processes:
        return ["no fastsock process of yours in this network namespace"]
    rows = [HEADINGS, *(row(process, each) for process in processes for each in process.connections)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADINGS))]
    lines = [f"{process.pid}  {process.command[:LONGEST]}{_version(process)}" for process in processes]
    for cells in rows if len(rows) > 1 else ():
        padded = [
            cell.rjust(width) if heading in RIGHT else cell.ljust(width)
            for cell, width, heading in zip(cells, widths, HEADINGS, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _version(process: looking.Process) -> str:
    """What is said of a process whose answers cannot be read."""
    if process.protocol == looking.VERSION:
        return ""
    return f"  (version {process.protocol} of the protocol, not {looking.VERSION}: its own fastsock ss shows more)"


def row(process: looking.Process, end: looking.Connection) -> tuple[str, ...]:
    """The cells of one end of a connection."""

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
