"""`fastsock top`: shows the activity of the fastsock processes of this user, by process and connection."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs

from fastsock.tools import introspection
from fastsock.tools.columns import Column, lines

__all__ = ["CONNECTIONS", "PROCESSES", "Rates", "Sample", "rates", "run", "sample"]

SHOWN = 40
"""Maximum number of connections in the table, the busiest first."""

RATES = (
    Column("sent/s", "bytes sent on the ring per second"),
    Column("received/s", "bytes received on the ring per second"),
    Column("msg out/s", "messages sent on the ring: small sends share one, large sends need several", goes=3),
    Column("msg in/s", "messages received on the ring", goes=4),
    Column("rung/s", "times that this end woke the sleeping other end, by a system call", goes=5),
)
PROCESSES = (
    Column("pid", "the process"),
    Column("cpu", "its CPU time: 100 % is one CPU"),
    Column("polling", "the part of it that blocking calls spent polling memory (a lower bound)"),
    Column("ring", "its connection ends in shared memory"),
    Column("tcp", "its connection ends in the kernel"),
    *RATES,
    Column("command", "its command line", right=False, shortens=True),
)
CONNECTIONS = (
    Column("pid", "the process of this end"),
    Column("local", "address and port of this end", right=False, shortens=True),
    Column("peer", "address and port of the other end", right=False, shortens=True),
    Column("recv-q", "received bytes that the program has not read", goes=1),
    Column("credits", "messages that this end may send before the other end must read / maximum", goes=2),
    *RATES,
)
CLEAR, LIVE, OVER = "\x1b[H\x1b[J", "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Terminal sequences: clear the screen; alternate screen without cursor; back to the main screen."""


@attrs.frozen
class Sample:
    """The state of all processes at one moment."""

    when: float
    """Monotonic time in seconds."""
    processes: tuple[introspection.Process, ...]
    processor: Mapping[int, float]
    """pid -> CPU time so far, in seconds."""


@attrs.frozen(kw_only=True)
class Rates:
    """Differences of two samples, per second, of a process or a connection end."""

    sent: float
    """Bytes."""
    received: float
    messages_sent: float
    messages_received: float
    doorbells: float
    polling: float
    """Seconds of polling in blocking calls (a lower bound)."""


def sample(pids: set[int] | None = None) -> Sample:
    """Queries all processes, or `pids`. Raises OSError if processes cannot be queried."""
    processes = introspection.query(pids)
    return Sample(time.monotonic(), tuple(processes), {each.pid: processor_seconds(each.pid) for each in processes})


def processor_seconds(pid: int) -> float:
    """Returns user plus system time of a process in seconds; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> Rates:
    """Returns the rates from two readings of the same counters."""

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


def totals(process: introspection.Process) -> dict[str, int]:
    return {name: process.total(name) for name in introspection.COUNTERS}


def tables(before: Sample, now: Sample) -> list[tuple[str, Sequence[Column], list[tuple[str, ...]]]]:
    """Returns title, columns and rows of two tables: the processes, and the busiest connections on the ring."""
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
        known = f"{100 * rate.polling:.0f} %", str(moved), str(len(process.connections) - moved), *_shown(rate)
        if process.protocol != introspection.VERSION:
            known = ("-",) * len(known)
        cpu = f"{100 * max(spent, 0.0) / seconds:.0f} %"
        rows.append((str(process.pid), cpu, *known, process.command[:60]))
        for end in process.connections:
            if end.counters:
                then = ends.get((process.pid, end.inode), end)
                busy.append((rates(then.counters, end.counters, seconds), process, end))
    busy.sort(key=lambda one: one[0].sent + one[0].received, reverse=True)
    flows = [
        (str(process.pid), end.local, end.peer, str(end.receive_queue), f"{end.credits}/{end.window}", *_shown(rate))
        for rate, process, end in busy[:SHOWN]
    ]
    return [("processes", PROCESSES, rows), ("connections on the ring", CONNECTIONS, flows)]


def _shown(rate: Rates) -> tuple[str, ...]:
    counts = rate.messages_sent, rate.messages_received, rate.doorbells
    return (_bytes(rate.sent), _bytes(rate.received), *(f"{count:,.0f}" for count in counts))


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def drawn(before: Sample, now: Sample, width: int | None) -> list[str]:
    """Returns the tables as lines of at most `width` characters."""
    made = []
    for title, columns, rows in tables(before, now):
        made += [title, *lines(columns, rows, width), ""]
    return made[:-1]


def run(pids: set[int] | None, interval: float, rounds: int | None) -> int:
    """Shows the tables of all processes, or of `pids`, every `interval` seconds, `rounds` times or until Ctrl-C. If the
    output is not a terminal, lines are not cut and the default is one round. Returns 0. Raises OSError if processes
    cannot be queried."""
    terminal = sys.stdout.isatty()
    live = terminal and rounds is None
    left = rounds if rounds is not None else None if terminal else 1
    with _screen(live):
        before = sample(pids)
        try:
            while left is None or left > 0:
                time.sleep(interval)
                now = sample(pids)
                size = shutil.get_terminal_size() if terminal else None
                shown = drawn(before, now, size.columns if size else None)
                print((CLEAR if live else "") + "\n".join(shown[: size.lines - 1] if live and size else shown))
                before = now
                left = None if left is None else left - 1
                print(end="\n" if left else "", flush=True)
        except KeyboardInterrupt:
            pass
    return 0


@contextmanager
def _screen(live: bool) -> Iterator[None]:
    """Uses the terminal's alternate screen during the `with` block."""
    if not live:
        yield
        return
    print(LIVE, end="", flush=True)
    try:
        yield
    finally:
        print(OVER, end="", flush=True)
