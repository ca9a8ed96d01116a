"""`fastsock top`: what the fastsock processes of this user do just now, by process and connection."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fastsock.tools import looking

__all__ = ["Rates", "Sample", "rates", "run", "sample"]

SHOWN = 40
"""Connections in the table, the busiest first."""


@attrs.frozen
class Sample:
    """What was seen at one moment."""

    when: float
    """Monotonic seconds."""
    processes: tuple[looking.Process, ...]
    processor: Mapping[int, float]
    """pid -> seconds of processor time so far."""


@attrs.frozen(kw_only=True)
class Rates:
    """What changed between two samples, each per second. For a process, or for one end of a connection."""

    sent: float
    """Bytes."""
    received: float
    messages_sent: float
    messages_received: float
    doorbells: float
    polling: float
    """Seconds of polling in blocking calls, at least."""


def sample() -> Sample:
    """Looks once. OSError if nobody can be asked."""
    processes = looking.look()
    return Sample(time.monotonic(), tuple(processes), {each.pid: processor_seconds(each.pid) for each in processes})


def processor_seconds(pid: int) -> float:
    """User and system time of a process, seconds; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> Rates:
    """From two readings of the same counters."""

    def per_second(*names: str) -> float:
        return max(sum(now.get(name, 0) - before.get(name, 0) for name in names), 0) / seconds

    return Rates(
        sent=per_second("bytes_sent"),
        received=per_second("bytes_received"),
        messages_sent=per_second("messages_sent"),
        messages_received=per_second("messages_received"),
        doorbells=per_second("doorbells_rung"),
        polling=per_second("poll_ns") / 1e9,
    )


def totals(process: looking.Process) -> dict[str, int]:
    return {name: process.total(name) for name in looking.COUNTERS}


def tables(before: Sample, now: Sample) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, headings and rows: of the processes, and of the busiest connections on the ring."""
    seconds = max(now.when - before.when, 1e-3)
    old = {process.pid: process for process in before.processes}
    ends = {(process.pid, end.inode): end for process in before.processes for end in process.connections}
    rows, busy = [], []
    for process in now.processes:
        earlier = old.get(process.pid, process)
        rate = rates(totals(earlier), totals(process), seconds)
        spent = now.processor.get(process.pid, 0.0) - before.processor.get(
            process.pid, now.processor.get(process.pid, 0.0)
        )
        moved = sum(end.path == "ring" for end in process.connections)
        rows.append(
            (
                str(process.pid),
                f"{100 * max(spent, 0.0) / seconds:.0f} %",
                f"{100 * rate.polling:.0f} %",
                str(moved),
                str(len(process.connections) - moved),
                *_shown(rate),
                process.command[:60],
            )
        )
        for end in process.connections:
            if end.counters:
                then = ends.get((process.pid, end.inode), end)
                busy.append((rates(then.counters, end.counters, seconds), process, end))
    busy.sort(key=lambda one: one[0].sent + one[0].received, reverse=True)
    flows = [
        (str(process.pid), end.local, end.peer, str(end.receive_queue), f"{end.credits}/{end.window}", *_shown(rate))
        for rate, process, end in busy[:SHOWN]
    ]
    shared = ("sent/s", "received/s", "msg out/s", "msg in/s", "rung/s")
    return [
        ("processes", ("pid", "cpu", "polling", "ring", "tcp", *shared, "command"), rows),
        ("connections on the ring", ("pid", "local", "peer", "recv-q", "credits", *shared), flows),
    ]


def _shown(rate: Rates) -> tuple[str, ...]:
    counts = rate.messages_sent, rate.messages_received, rate.doorbells
    return (_bytes(rate.sent), _bytes(rate.received), *(f"{count:,.0f}" for count in counts))


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def run(interval: float, rounds: int | None) -> int:
    """Shows the tables anew every `interval` seconds, `rounds` times, or until it is interrupted.

    ImportError without rich."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table

    def drawn(before: Sample, now: Sample) -> Any:
        made = []
        for title, headings, rows in tables(before, now):
            table = Table(*headings, title=title, title_justify="left")
            for cells in rows:
                table.add_row(*cells)
            made.append(table)
        return Group(*made)

    console = Console()
    before = sample()
    with Live(console=console, auto_refresh=False, screen=console.is_terminal and rounds is None) as live:
        return _rounds(before, interval, rounds, lambda then, now: live.update(drawn(then, now), refresh=True))


def _rounds(before: Sample, interval: float, rounds: int | None, draw: Callable[[Sample, Sample], None]) -> int:
    try:
        while rounds is None or rounds > 0:
            time.sleep(interval)
            now = sample()
            draw(before, now)
            before = now
            rounds = None if rounds is None else rounds - 1
    except KeyboardInterrupt:
        pass
    return 0
