"""`fastsock ss`: the connections of all fastsock processes of this user, like `ss`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from fastsock.tools import introspection
from fastsock.tools.columns import Column, lines

__all__ = ["COLUMNS", "show", "table"]

COLUMNS = (
    Column("STATE", "the kernel's state of the connection, as of ss(8)", right=False),
    Column("PATH", "ring: a direction or both are in shared memory; tcp: the bytes take the kernel's TCP", right=False),
    Column("REASON", "ring: which directions have moved; tcp: why it is there (docs/reasons.md)", right=False),
    Column("RECV-Q", "bytes that have come and that this program has not read"),
    Column("SEND-Q", "bytes that this end has sent and the kernel has not delivered; on the ring always 0"),
    Column("CREDITS", "messages that this end may send before the other end has to read, of how many in all"),
    Column("MSG-OUT", "messages sent on the ring: small sends share one, large ones take several"),
    Column("MSG-IN", "messages received on the ring"),
    Column("RUNG", "times that this end woke the other one, which slept: a system call each"),
    Column("POLLS", "waits that began by polling memory, whether that found something or not"),
    Column("LOCAL", "address and port of this end", right=False),
    Column("PEER", "address and port of the other end", right=False),
    Column("PID", "the process that has this end"),
    Column("PEER-PID", "the process that has the other end, if it uses fastsock"),
    Column(
        "MARKS",
        "polled: the program has the descriptor's number, and may poll it; loop: an event loop drives it; sleeps: the "
        "program waits for bytes; full: it waits for room; left: it is on its way back to the kernel",
        right=False,
    ),
)
LONGEST = 120
"""Characters of a command line that are shown."""


def show(pids: set[int] | None, as_json: bool) -> int:
    """Prints them. 1 if `pids` are given and none of them answered, else 0. OSError if nobody can be asked."""
    processes = introspection.look(pids)
    if as_json:
        print(json.dumps([attrs.asdict(process) for process in processes], indent=2))
    else:
        print("\n".join(table(processes)))
    return int(pids is not None and not processes)


def table(processes: Sequence[introspection.Process]) -> list[str]:
    """The lines of the table: processes, then their connections."""
    if not processes:
        return ["no fastsock process of yours in this network namespace"]
    rows = [row(process, each) for process in processes for each in process.connections]
    heads = [f"{process.pid}  {process.command[:LONGEST]}{_version(process)}" for process in processes]
    return heads + (lines(COLUMNS, rows) if rows else [])


def _version(process: introspection.Process) -> str:
    """What is said of a process whose answers cannot be read."""
    if process.protocol == introspection.VERSION:
        return ""
    return (
        f"  (version {process.protocol} of the protocol, not {introspection.VERSION}: its own fastsock ss shows more)"
    )


def row(process: introspection.Process, end: introspection.Connection) -> tuple[str, ...]:
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
