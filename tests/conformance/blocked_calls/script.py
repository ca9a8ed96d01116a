"""What is done with one combination, and what is looked at: the same on kernel TCP and on the ring.

`play` is a generator, which yields wherever the world has to come to rest: until all threads of both ends sleep in the
kernel, or are done. So one thread can play many combinations at once (`drive`), most of whose time is waiting.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.pairs import SECONDS

from .combinations import CALLS, ORACLE, RECEIVES, Combination
from .ends import End, Remote, remote_end

FULL, WAITING = 8_000_000, 5
"""Bytes: more than a connection holds; some."""

SENDALL, RING_SENDALL, LEAVING_SENDALL = 700_000, 6_000_000, 12_000_000
"""Bytes of a `sendall` in progress: more than the buffers of the path hold beside what fills them. (Where the
peer of a ring does not read for a while, the kernel's are before it too.)"""

MEETING = 4.0
"""Seconds for two ends to meet; they give up after 2."""

ATTEMPTS = 3
"""How often a state is tried to bring about."""

ROUNDS = 200
"""How often at most the peer reads before what is blocked in `sendall` must have come through."""


class Unreached(Exception):
    """The state, or the call in progress, did not come about."""


@dataclass
class Play:
    """One combination on one path; `seen` fills with what was observed."""

    path: str
    combination: Combination
    seen: list[str] = field(default_factory=list)
    problem: str = ""
    """Why there is nothing to compare."""
    state: str = ""
    """Of the ends, if a call was still in progress at the end."""
    near: Any = None
    far: Any = None

    def ends(self) -> list[Any]:
        return [end for end in (self.near, self.far) if end is not None]

    # ---- the state

    def connect(self) -> None:
        c = self.combination
        near, far = (("near", *self._kind), ("far", *self._kind))
        if c.event == "near.killed":
            self.near = remote_end(*near)
            self.far = End(*far)
        else:
            self.far = remote_end(*far) if c.in_processes else End(*far)
            self.near = End(*near)
        local, other = (self.far, self.near) if c.event == "near.killed" else (self.near, self.far)
        other.connect(local.listen())
        local.accept()

    @property
    def _kind(self) -> tuple[bool, bool, int]:
        """Whether the ends are fastsock's, whether the kernel's buffers are limited, and how much a `sendall` sends."""
        if self.path != "ring":
            return self.path != ORACLE, True, SENDALL
        # An end that leaves the ring has the kernel's buffers before it, which may grow to megabytes.
        return True, False, LEAVING_SENDALL if self.combination.event.endswith(".leave") else RING_SENDALL

    def contents(self, sender: Any, receiver: Any, content: str) -> Generator[None]:
        if content == "waiting":
            assert sender.put(WAITING) == "ok"
        elif content == "full":
            refused = 0
            while refused < 3:  # the kernel moves bytes on after its first EAGAIN
                before = sender.counts()
                assert sender.put(FULL) == "EAGAIN", "it holds too much"
                refused = refused + 1 if sender.counts() == before else 0
                yield

    def move(self, sender: Any, receiver: Any) -> Generator[None]:
        limit = time.monotonic() + SECONDS
        while not (sender.moved()[0] and receiver.moved()[1]):
            if time.monotonic() > limit:
                raise Unreached("the direction does not move")
            assert sender.put(4) == "ok"
            yield
            receiver.drain()

    def prepare(self) -> Generator[None]:
        c, near, far = self.combination, self.near, self.far
        directions = {"out": (near, far, c.out), "in": (far, near, c.inn)}
        moving = {"out": ("out",), "in": ("in",), "ring": ("out", "in")}.get(self.path, ())
        for name, direction in directions.items():
            if name not in moving:
                yield from self.contents(*direction)
        if self.path not in (ORACLE, "tcp"):
            limit = time.monotonic() + MEETING
            while not (near.meets() & far.meets()):
                if time.monotonic() > limit:
                    raise Unreached("the ends do not meet")
                yield
            for name in moving:
                yield from self.move(*directions[name][:2])
                yield from self.contents(*directions[name])
            if (near.moved()[0], far.moved()[0]) != ("out" in moving, "in" in moving):
                raise Unreached(f"moved {near.moved()}, {far.moved()}")
        if c.out_end == "us":
            near.shut_wr()
        if c.in_end == "us":
            near.shut_rd()
        elif c.in_end == "peer":
            far.shut_wr()
        yield

    def start(self) -> Generator[None]:
        """Starts the calls; they are in progress afterwards."""
        c, near = self.combination, self.near
        for name in CALLS[c.call]:
            near.start(name, 3.0 * SECONDS if c.call == "recv-timeout" else None)
        yield
        states = near.calls()
        if set(states.values()) - {"blocked"}:
            raise Unreached(f"not in progress: {states}")

    # ---- looking

    def see(self, when: str, what: Any) -> None:
        self.seen.append(f"{when}: {what}")

    def see_calls(self, when: str) -> None:
        for name, state in self.near_calls().items():
            self.see(when, f"{name} {state}")

    def near_calls(self) -> dict[str, str]:
        return {} if self.killed == "near" else self.near.calls()

    def share(self, sender: Any, receiver: Any, known: int) -> str:
        """How much of what was certainly sent has been received."""
        received = receiver.counts()[1]
        sent = known if known >= 0 else sender.counts()[0]
        return "all" if received >= sent else "part"

    def empty(self, name: str, reader: Any, writer: Any, known: int) -> Generator[None]:
        """The end `name` reads what there is and what still comes: how much of it comes, and what stands behind it."""
        for _ in range(ROUNDS):
            size, what = reader.drain()
            yield
            if not size or what != "EAGAIN":
                break
        self.see(f"{name} reads", f"{self.share(writer, reader, known)}, then {what}")

    # ---- the whole

    gone = killed = ""
    """The end that is closed, and the one that does nothing any more. (Calls outlive a close by another thread.)"""

    def play(self) -> Generator[None]:
        c = self.combination
        for attempt in range(ATTEMPTS):
            self.connect()
            try:
                yield from self.prepare()
                yield from self.start()
                break
            except Unreached:  # a meeting has a time limit, which a loaded machine may miss
                if attempt == ATTEMPTS - 1:
                    raise
                for end in self.ends():
                    end.over()
        near, far = self.near, self.far
        end, _, what = c.event.partition(".")
        known = {"near": -1, "far": -1}
        if what == "killed":
            known[end] = (near if end == "near" else far).counts()[0]
        self.see("event", (near if end == "near" else far).act(what))
        if what in ("close", "reset", "killed"):
            self.gone = end
        if what == "killed":
            self.killed = end
        yield
        self.see_calls("after it")

        if self.gone != "far":
            yield from self.empty("far", far, near, known["near"])
            self.see_calls("far has read")
            self.see("far sends to nobody" if self.gone else "far sends", far.put(WAITING))
            yield
            self.see_calls("far has sent")
        if self.gone != "near":
            in_progress = {name for name, state in self.near_calls().items() if state == "blocked"}
            if not in_progress & RECEIVES:
                yield from self.empty("near", near, far, known["far"])
            if "sendall" not in in_progress:
                self.see("near sends to nobody" if self.gone else "near sends", near.put(WAITING))
                yield
            self.see("near polls", near.poll())
        if self.gone != "far":
            yield from self.empty("far", far, near, known["near"])
            self.see("far polls", far.poll())
            self.see("far closes", far.act("close"))
            yield
            self.see_calls("far has closed")
        if self.gone != "near":
            if "blocked" not in self.near_calls().values():
                yield from self.empty("near", near, far, known["far"])
                for _ in range(2):
                    self.see("near sends to nobody", near.put(WAITING))
                    yield
                self.see("near reads", near.drain()[1])
            self.see("near polls", near.poll())


def drive(plays: Iterable[Play], quiet: float, told: Callable[[Play], None] = lambda play: None) -> None:
    """Plays them all at once. At rest is what has not changed for `quiet` seconds. `told` hears of each at its end."""
    running = {id(play): (play, play.play()) for play in plays}
    while running:
        for key, (play, steps) in list(running.items()):
            try:
                next(steps)
                continue
            except StopIteration:
                pass
            except Unreached as error:
                play.problem = f"unreached: {error}"
            except BaseException:
                play.problem = traceback.format_exc()
            if any("blocked" in state or "runs" in state for state in _calls(play)):
                play.state = "\n".join(end.describe() for end in play.ends() if not isinstance(end, Remote))
            for end in play.ends():
                end.over()
            del running[key]
            told(play)
        if running:
            settle([play for play, _ in running.values()], quiet)


def _calls(play: Play) -> list[str]:
    return [] if play.near is None or isinstance(play.near, Remote) else list(play.near.calls().values())


def settle(plays: list[Play], quiet: float) -> None:
    """Waits until the threads of all ends are at rest; for one that never is, until time is up."""
    limit = time.monotonic() + max(3.0, 3 * quiet)
    before: list[Any] = []
    since = time.monotonic()
    while True:
        now = [play.near.stable() for play in plays if play.killed != "near" and play.near is not None]
        restless = any(None in state.values() for state in now)
        if restless or now != before:
            since, before = time.monotonic(), now
        elif time.monotonic() - since >= quiet:
            return
        if time.monotonic() > limit:
            return
        time.sleep(quiet / 4 if quiet < 0.1 else 0.02)
