"""What the two ends of a connection do, drawn from the connection's key: both ends compute the whole plan.

A plan has *turns* (who may send how much after having received how much) or none (both send all they have at once). An
end has *stages*: a program, and the event that ends it at some byte. Every plan can be carried out without a deadlock:
where both ends have programs that do one thing at a time, there are turns.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

SIDES = ("client", "server")
SEQUENTIAL = ("block", "timeout")
SELECTING = ("select", "poll", "epoll", "epoll-edge", "epoll-oneshot")
THREADED = ("threads", "four", "makefile")
KINDS: dict[str, tuple[str, ...]] = {
    "sockets": SEQUENTIAL + SELECTING + THREADED,
    "asyncio": ("streams", "protocol", "buffered", "socks"),
    "uvloop": ("streams", "protocol", "buffered", "socks"),
    "trio": ("trio",),
}
"""Kinds of worker processes, and their programs."""
CLIENTS_ONLY = ("socks",)
SECURING = ("protocol", "buffered", "trio")  # besides all programs of sockets
HANDOVERS = ("adopt", "dup", "pass", "fork")
ABORTS = ("linger0", "close", "shutdown")
LONG_ANSWER = 10_000_000


def other(side: str) -> str:
    return SIDES[side == "client"]


@dataclass(frozen=True)
class Stage:
    program: str
    position: int = 0
    """Bytes, sent plus received, at which the event comes."""
    event: str | None = None
    """None: the stage goes on to the end of the connection."""


@dataclass(frozen=True)
class Features:
    """What a run leaves out."""

    fork: bool = True
    urgent: bool = True
    programs: tuple[str, ...] = ()
    """Only these ("kind/program"), if any are given."""
    size: int = 4_000_000
    """Bytes of a connection's last and largest piece, at most."""

    def offered(self, kind: str, side: str) -> list[str]:
        """The programs of a kind that may be drawn for a side."""
        return [
            name
            for name in KINDS[kind]
            if (not self.programs or kind in self.programs or f"{kind}/{name}" in self.programs)
            and not (side == "server" and name in CLIENTS_ONLY)
        ]


class Plan:
    def __init__(self, key: int, kinds: Sequence[str], features: Features) -> None:
        self.key, self.kinds = key, dict(zip(SIDES, kinds, strict=True))
        rng = self.rng = random.Random(f"plan {key}")
        self.most = features.size
        programs = {side: rng.choice(features.offered(self.kinds[side], side)) for side in SIDES}
        self.turns: tuple[list[int], list[int]] | None = None  # sums of bytes after each turn, (client's, server's)
        self.barrier_turn: int | None = None  # TLS begins after this turn
        self.stages: dict[str, list[Stage]] = {}
        self.urgent = {side: rng.random() < 0.05 and features.urgent for side in SIDES}  # an urgent byte somewhere
        if rng.random() < 0.06 and all(self.kinds[s] == "sockets" or programs[s] in SECURING for s in SIDES):
            self._draw_secured(programs)
            return
        forks_off = {side: self.kinds[side] == "sockets" and rng.random() < 0.04 and features.fork for side in SIDES}
        sequential = all(programs[side] in SEQUENTIAL for side in SIDES)
        if any(forks_off.values()):
            self._draw_sizes()
        elif sequential or rng.random() < 0.4:
            self._draw_turns()
        else:
            self._draw_sizes()
        for side in SIDES:
            self.stages[side] = self._draw_stages(side, programs[side], forks_off[side], features)
        if any(forks_off.values()):
            for side in SIDES:  # the peer of two processes must do both things at once
                if not forks_off[side] and self.stages[side][-1].program in SEQUENTIAL:
                    self.stages[side][-1] = Stage(rng.choice(SELECTING))
        if rng.random() < 0.12:
            self._draw_abort(rng.choice(SIDES))

    # ---- drawing -------------------------------------------------------------------------------------------

    def _size(self) -> int:
        rng = self.rng
        return rng.randrange(min(rng.choice([1, 2, 200, 5000, 100_000, 100_000, 1_000_000, 4_000_000]), self.most))

    def _draw_sizes(self) -> None:
        self.up, self.down = self._size(), self._size()

    def _draw_turns(self) -> None:
        rng = self.rng
        if rng.random() < 0.1:  # many round trips, and then a long answer to a half-closed connection
            answer = LONG_ANSWER if rng.random() < 0.3 else LONG_ANSWER // 10
            pieces = [(1, 1)] * 50 + [(1, min(answer, 3 * self.most))]
        else:
            most = min(rng.choice([2, 50, 3000, 60_000]), max(self.most, 2))
            pieces = [(rng.randrange(1, most), rng.randrange(1, most)) for _ in range(rng.randrange(40))]
            pieces.append((self._size(), self._size()))
        self._set_turns(pieces)

    def _set_turns(self, pieces: list[tuple[int, int]]) -> None:
        self.turns = ([], [])
        for at in 0, 1:
            total = 0
            for piece in pieces:
                total += piece[at]
                self.turns[at].append(total)
        self.up, self.down = self.turns[0][-1], self.turns[1][-1]

    def _draw_secured(self, programs: dict[str, str]) -> None:
        rng = self.rng
        plain = [(rng.randrange(1, 3000), rng.randrange(1, 3000)) for _ in range(rng.randrange(1, 20))]
        self.barrier_turn = len(plain) - 1
        below = [(rng.randrange(1, 40_000), rng.randrange(1, 40_000)) for _ in range(rng.randrange(1, 20))]
        self._set_turns([*plain, *below, (rng.randrange(1, 400_000), rng.randrange(1, 400_000))])
        self.urgent = dict.fromkeys(SIDES, False)
        for side in SIDES:
            first = then = programs[side]
            if self.kinds[side] == "sockets":
                first, then = rng.choice(SEQUENTIAL + SELECTING), "secured"
            self.stages[side] = [Stage(first, 0, "tls"), Stage(then)]

    def _draw_stages(self, side: str, program: str, forks_off: bool, features: Features) -> list[Stage]:
        rng = self.rng
        if self.kinds[side] != "sockets":
            return [Stage(program)]
        events = [rng.choice(HANDOVERS) for _ in range(rng.choice([0, 0, 0, 0, 0, 0, 1, 1, 1, 2]))]
        events = [event for event in events if features.fork or event != "fork"]
        positions = sorted(rng.randrange(self.up + self.down + 1) for _ in events)
        before = SELECTING if self.turns is None else SELECTING + SEQUENTIAL
        stages = [Stage(rng.choice(before), at, event) for at, event in zip(positions, events, strict=True)]
        if forks_off:
            where = rng.randrange(self.up + self.down + 1)
            at = max([where, *positions])
            return [*stages, Stage(rng.choice(SELECTING), at, "fork-off"), Stage(rng.choice(SEQUENTIAL))]
        return [*stages, Stage(program)]

    def _draw_abort(self, side: str) -> None:
        """One end gives up in the middle. (Threads are never interrupted: a program that selects takes their place.)"""
        rng, stages = self.rng, self.stages[side]
        if any(stage.event == "fork-off" for stage in stages):
            return
        program = stages[-1].program
        if program in THREADED or (program in SEQUENTIAL and self.turns is None):
            program = rng.choice(SELECTING)
        at = max([rng.randrange(self.up + self.down + 1), *(stage.position for stage in stages)])
        stages[-1] = Stage(program, at, "abort-" + rng.choice(ABORTS))

    # ---- asking --------------------------------------------------------------------------------------------

    def totals(self, side: str) -> tuple[int, int]:
        """Bytes that a side sends and receives."""
        return (self.up, self.down) if side == "client" else (self.down, self.up)

    def limit(self, side: str, got: int, secured: bool) -> int:
        """How much of its stream a side may have sent once it has received `got` bytes."""
        if self.turns is None:
            return self.totals(side)[0]
        ups, downs = self.turns
        if side == "client":
            turn = min(bisect_right(downs, got), len(ups) - 1)
            sums = ups
        else:
            turn = bisect_right(ups, got) - 1
            sums = downs
        if self.barrier_turn is not None and not secured:
            turn = min(turn, self.barrier_turn)
        return sums[turn] if turn >= 0 else 0

    def barrier(self, side: str) -> tuple[int, int]:
        """Bytes sent and received by a side when TLS begins."""
        assert self.turns is not None
        assert self.barrier_turn is not None
        both = [sums[self.barrier_turn] for sums in self.turns]
        return (both[0], both[1]) if side == "client" else (both[1], both[0])

    def unordered(self, side: str) -> bool:
        """Whether several threads of a side receive at once, so that pieces are not noted in their order."""
        return any(stage.program == "four" for stage in self.stages[side])

    def name(self, side: str) -> str:
        """What the summary calls a side's program."""
        last = self.stages[side][-1].program
        events = {stage.event.partition("-")[0] for stage in self.stages[side] if stage.event}
        return "+".join([f"{self.kinds[side]}/{last}", *sorted(events)])
