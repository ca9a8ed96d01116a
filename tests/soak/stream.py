"""What a connection carries: bytes that both ends compute from its key, and where one end stands in them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from tests.soak.plan import Plan, Stage, other

PERIOD = 65537
"""Bytes after which a stream repeats: a prime, so that no buffer's size divides it."""


class Wrong(Exception):
    """What must not happen: a byte that differs, a wait without an end."""


class Stream:
    """The bytes of one direction. With ``whole`` they do not repeat, so that any piece can be found in them."""

    def __init__(self, key: int, total: int, whole: bool) -> None:
        self.key = key
        self.bytes = random.Random(key).randbytes(total if whole else min(total, PERIOD))
        self.whole = whole

    def piece(self, at: int, length: int) -> bytes:
        if not self.whole:
            at %= PERIOD
            if at + length > len(self.bytes):
                return (self.bytes * ((at + length) // PERIOD + 1))[at : at + length]
        return self.bytes[at : at + length]


class Talk:
    """One end of one connection: how far its two streams have come, and which part of its plan is next."""

    def __init__(self, plan: Plan, side: str, place: dict[str, int] | None = None) -> None:
        self.plan, self.side = plan, side
        self.total_out, self.total_in = plan.totals(side)
        # (A stream is whole if the end that reads it has several threads in recv at once.)
        self.out = Stream(plan.key * 2 + (side == "server"), self.total_out, plan.unordered(other(side)))
        self.into = Stream(plan.key * 2 + (side == "client"), self.total_in, plan.unordered(side))
        self.sent = self.got = self.stage = 0
        self.serial = 0  # tells connections apart that have the same plan
        self.shut = self.eof = self.secured = self.urgent_sent = False
        self.started = self.progress = time.monotonic()
        self.part = "all"  # or "in" or "out": this process has one direction, a forked one the other
        self.path = "tcp"
        self.handle: Any = None  # the socket or transport, for reports
        self.abandon: Callable[[], None] = lambda: None  # ends a connection that hangs
        self.reported = False
        if place:
            for name, value in place.items():
                setattr(self, name, value)
        self.begin_stage()

    def place(self) -> dict[str, Any]:
        """What another process needs to go on from here."""
        names = ("serial", "sent", "got", "stage", "shut", "eof", "urgent_sent", "started", "path")
        return {name: getattr(self, name) for name in names}

    # ---- stages ------------------------------------------------------------------------------------------

    @property
    def now(self) -> Stage:
        return self.plan.stages[self.side][self.stage]

    def begin_stage(self) -> None:
        self.rng = random.Random(f"{self.plan.key} {self.side} {self.stage}")

    def next_stage(self) -> None:
        self.stage += 1
        self.begin_stage()

    @property
    def over(self) -> bool:
        """Whether both directions have ended as they should."""
        if self.secured:
            return self.sent == self.total_out and self.got == self.total_in
        return (self.eof or self.part == "out") and (self.shut or self.part == "in")

    @property
    def at_event(self) -> bool:
        """Whether this stage has come to its event."""
        stage = self.now
        if stage.event == "tls":
            return (self.sent, self.got) == self.plan.barrier(self.side)
        return stage.event is not None and self.sent + self.got >= stage.position

    @property
    def cut_short(self) -> bool:
        """Whether the peer's stream has ended before this end may send the rest of its own. (It looks at the end
        first: other threads may receive meanwhile.)"""
        return self.eof and not self.allowed and not self.sent_all and not self.over

    @property
    def stage_over(self) -> bool:
        return self.over or self.at_event or self.cut_short

    # ---- what may be sent and received now -------------------------------------------------------------------

    @property
    def allowed(self) -> int:
        """Bytes that may be sent now."""
        if self.shut or self.part == "in":
            return 0
        return self.plan.limit(self.side, self.got, self.secured) - self.sent

    @property
    def due(self) -> int:
        """Bytes that the other end sends whatever happens here: a call may wait for that many."""
        return self.plan.limit(other(self.side), self.sent, self.secured) - self.got

    @property
    def takes(self) -> bool:
        """Whether the next receive belongs to this stage: it may bring bytes or the end."""
        return not self.eof and self.part != "out" and not (self.now.event == "tls" and not self.most_in)

    @property
    def most_in(self) -> int:
        """Bytes that a receive may ask for: before TLS not those of its handshake."""
        if self.now.event == "tls":
            return self.plan.barrier(self.side)[1] - self.got
        return 1 << 30

    @property
    def sent_all(self) -> bool:
        """Whether the end of the stream is next."""
        return self.sent == self.total_out and not self.shut and not self.secured and self.part != "in"

    def next_out(self, most: int) -> bytes:
        return self.out.piece(self.sent, min(most, self.allowed))

    # ---- what happened ---------------------------------------------------------------------------------------

    def did_send(self, count: int) -> None:
        self.sent += count
        self.moved_on()

    def check(self, data: bytes | bytearray | memoryview) -> None:
        """Raises Wrong if these are not the next bytes of the stream; they are not taken."""
        want = self.into.piece(self.got, len(data))
        if self.got + len(data) > self.total_in:
            raise Wrong(f"{self.got + len(data) - self.total_in} bytes too many: {bytes(data[-60:])!r}")
        if want != data:
            at = next(i for i, (a, b) in enumerate(zip(want, data, strict=True)) if a != b)
            where = self.into.bytes.find(bytes(data[at : at + 16])) if len(data) - at >= 8 else -1
            raise Wrong(
                f"stream {self.into.key} differs at {self.got + at} (in a piece of {len(data)} bytes from {self.got}):"
                f" {bytes(data[at : at + 16])!r} for {want[at : at + 16]!r}; this stands at {where} modulo {PERIOD}"
            )

    def took(self, data: bytes | bytearray | memoryview) -> None:
        self.check(data)
        self.got += len(data)
        self.moved_on()

    def ended(self) -> None:
        self.eof = True
        self.moved_on()

    def moved_on(self) -> None:
        self.progress = time.monotonic()
