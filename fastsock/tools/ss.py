"""`fastsock ss`: lists the connections of all fastsock processes of this user, like ss(8)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from fastsock.tools import introspection
from fastsock.tools.columns import Column, lines

__all__ = ["COLUMNS", "show", "table"]

COLUMNS = (
    Column("STATE", "the kernel's state of the connection, as in ss(8)", right=False),
    Column("PATH", "ring: at least one direction is in shared memory; tcp: both are on kernel TCP", right=False),
    Column("REASON", "ring: the directions that have moved; tcp: why it did not move (docs/reasons.md)", right=False),
    Column("RECV-Q", "received bytes that the program has not read"),
    Column("SEND-Q", "sent bytes that the kernel has not delivered; always 0 on the ring"),
    Column("CREDITS", "messages that this end may send before the other end must read / maximum"),
    Column("MSG-OUT", "messages sent on the ring: small sends share one, large sends need several"),
    Column("MSG-IN", "messages received on the ring"),
    Column("RUNG", "times that this end woke the sleeping other end, by a system call"),
    Column("POLLS", "waits that polled memory first, with or without success"),
    Column("LOCAL", "address and port of this end", right=False),
    Column("PEER", "address and port of the other end", right=False),
    Column("PID", "the process of this end"),
    Column("PEER-PID", "the process of the other end, if it uses fastsock"),
    Column(
        "MARKS",
        "polled: the program has called fileno() and may poll the descriptor; loop: an event loop handles the "
        "connection; sleeps: the program waits for bytes; full: it waits for room; left: the connection goes back to "
        "kernel TCP",
        right=False,
    ),
)
LONGEST = 120
"""Characters of a command line to print."""


def show(pids: set[int] | None, as_json: bool) -> int:
    """Prints the connections. Returns 1 if `pids` are given and none of them answered, else 0. Raises OSError if
    processes cannot be queried."""
    processes = introspection.query(pids)
    if as_json:
        print(json.dumps([attrs.asdict(process) for process in processes], indent=2))
    else:
        print("\n".join(table(processes)))
    return int(pids is not None and not processes)


def table(processes: Sequence[introspection.Process]) -> list[str]:
    """Returns the lines of the table: processes, then their connections."""
    if not processes:
        return ["none of your processes in this network namespace uses fastsock"]
    rows = [row(process, each) for process in processes for each in process.connections]
    heads = [f"{process.pid}  {process.command[:LONGEST]}{_version(process)}" for process in processes]
    return heads + (lines(COLUMNS, rows) if rows else [])


def _version(process: introspection.Process) -> str:
    """Returns a remark if the process uses another version of the protocol, else ""."""
    if process.protocol == introspection.VERSION:
        return ""
    return (
        f"  (protocol version {process.protocol}, not {introspection.VERSION}: use the fastsock ss of its installation)"
    )


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
