"""Judges how connections ended: both ends' reports together, and what the driver did to their processes meanwhile."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STARVED = ("errno 24", "errno 23")  # EMFILE, ENFILE
EARLY, LATE = 2.0, 2.0  # seconds around a connection in which a kill may have been its end


@dataclass
class Connection:
    slots: dict[str, str]
    started: float
    ends: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: {"client": {}, "server": {}})

    def complete(self, side: str) -> bool:
        parts = self.ends[side]
        return "all" in parts or {"in", "out"} <= parts.keys()

    def reports(self) -> list[dict[str, Any]]:
        return [report for side in self.ends.values() for report in side.values()]


class Judge:
    def __init__(self, finding: Callable[[str], None]) -> None:
        self.finding = finding
        self.open: dict[int, Connection] = {}
        self.kills: dict[str, list[float]] = defaultdict(list)
        self.limits: dict[str, list[list[float]]] = defaultdict(list)
        self.hows: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.programs: Counter[str] = Counter()
        self.on_ring: Counter[str] = Counter()
        self.connections = self.moved = self.refused = self.bytes = 0
        self.early: dict[int, list[dict[str, Any]]] = defaultdict(list)

    # ---- what the driver did -------------------------------------------------------------------------------

    def killed(self, slot: str) -> None:
        self.kills[slot].append(time.monotonic())

    def limited(self, slot: str) -> list[float]:
        """From when to when: whoever takes the limit back says the end, on a busy machine too."""
        self.limits[slot].append([time.monotonic(), math.inf])
        return self.limits[slot][-1]

    def _hurt(self, connection: Connection, until: float) -> bool:
        first = connection.started - EARLY
        return any(first <= at <= until + LATE for slot in connection.slots.values() for at in self.kills[slot])

    def _starved(self, connection: Connection, side: str, until: float) -> bool:
        spans = self.limits[connection.slots[side]]
        return any(begin <= until + LATE and end >= connection.started - EARLY for begin, end in spans)

    # ---- what the workers said -----------------------------------------------------------------------------

    def begin(self, line: dict[str, Any]) -> None:
        slots = {"client": line["slot"], "server": line["to"]}
        connection = self.open[line["serial"]] = Connection(slots, line["started"])
        for report in self.early.pop(line["serial"], ()):
            self._note(connection, report)

    def no_connection(self, line: dict[str, Any]) -> None:
        self.refused += 1
        self.open.pop(line["serial"], None)

    def end(self, line: dict[str, Any]) -> None:
        connection = self.open.get(line["serial"])
        if connection is None:
            self.early[line["serial"]].append(line)  # the server's word was read before the client's
            return
        self._note(connection, line)

    def _note(self, connection: Connection, line: dict[str, Any]) -> None:
        connection.ends[line["side"]][line["part"]] = line
        if line["how"] == "wrong":
            self.finding(f"{_title(line)}: {line['detail']}")
        if connection.complete("client") and connection.complete("server"):
            del self.open[line["serial"]]
            self._judge(connection)

    def _judge(self, connection: Connection) -> None:
        reports = connection.reports()
        until = max([report["ended"] for report in reports], default=time.monotonic())
        self._count(connection, reports)
        bad = [report for report in reports if report["how"] not in ("done", "gave up", "wrong")]
        hows = {report["how"] for report in reports}
        if not bad or hows & {"gave up", "wrong"} or self._hurt(connection, until):
            return
        if any(report["how"] in STARVED and self._starved(connection, report["side"], until) for report in reports):
            return
        for report in bad:
            self.finding(f"{_title(report)}: ended by {report['how']} without a reason\n{report['detail']}")

    def _count(self, connection: Connection, reports: list[dict[str, Any]]) -> None:
        self.connections += 1
        sides = {report["side"]: report for report in reports}
        names = tuple(sides[side]["program"] if side in sides else "?" for side in ("client", "server"))
        self.pairs[tuple(name.partition("/")[0] for name in names)] += 1  # type: ignore[index]
        for name in names:
            self.programs[name.partition("+")[0]] += 1
            for event in name.split("+")[1:]:
                self.programs["+" + event] += 1
        moved = any(report["path"] == "ring" for report in reports)
        self.moved += moved
        for name in names:
            self.on_ring[name.partition("+")[0]] += moved
        self.bytes += sum(report["got"] for report in reports)
        self.hows.update(report["how"] for report in reports)

    def waited_for(self) -> int:
        """Connections of which more should be heard."""
        now = time.monotonic()
        return sum(not self._excused(connection, now) for connection in self.open.values())

    def _excused(self, connection: Connection, now: float) -> bool:
        """Whether nothing more need be heard of a connection."""
        gave_up = any(report["how"] in ("gave up", "wrong") for report in connection.reports())
        unseen = not connection.ends["server"] and self._starved(connection, "server", now)
        return gave_up or unseen or self._hurt(connection, now)

    # ---- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """All workers are gone: what has not been said now is never said."""
        now = time.monotonic()
        for serial, connection in list(self.open.items()):
            reports = connection.reports()
            self._count(connection, reports)
            self.hows["no word"] += 1
            if self._excused(connection, now):
                continue
            missing = [side for side in connection.ends if not connection.complete(side)]
            known = "; ".join(f"{_title(report)}: {report['how']} {report['detail']}" for report in reports)
            where = ", ".join(f"{side} {connection.slots[side]}" for side in missing)
            self.finding(f"connection {serial}: no word from {where} ({known or 'nothing known'})")

    def summary(self) -> str:
        hows = ", ".join(f"{how} {count}" for how, count in self.hows.most_common())
        lines = [
            f"chaos: {self.connections} connections, {self.moved} moved to the ring, {self.refused} refused, "
            f"{self.bytes / 1e6:.0f} MB checked",
            f"  ends: {hows}",
        ]
        kinds = ", ".join(f"{a}-{b} {count}" for (a, b), count in sorted(self.pairs.items()))
        lines.append(f"  pairs of kinds (client-server): {kinds}")
        programs = ", ".join(
            f"{name} {count}" + (f" ({self.on_ring[name]} on the ring)" if name in self.on_ring else "")
            for name, count in sorted(self.programs.items())
        )
        lines.append(f"  programs at either end: {programs}")
        return "\n".join(lines)


def _title(report: dict[str, Any]) -> str:
    part = "" if report["part"] == "all" else f", the process that goes on {report['part']}ward"
    return (
        f"{report['side']} {report['slot']} pid {report['pid']} ({report['program']} to {report['peer']}{part})"
        f" {report['again']} sent {report['sent']}/{report['totals'][0]} got {report['got']}/{report['totals'][1]}"
        f" path {report['path']} from {report['started']:.3f} to {report['ended']:.3f}"
    )
