"""A state machine: calls in progress at both ends, and what happens meanwhile, against a simple truth.

The truth is two numbers for each direction, what was sent and what was received, whether it has ended, and of an end
that nobody holds any more whether it left bytes unread. From them follows what every call must do once the world is at
rest. The same rules hold on kernel TCP, where they run as well.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from harness.pairs import KINDS, Task, configured, until
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from .comparison import Difference
from .differences import IN_SEQUENCES
from .ends import End, Remote, end_holder, remote_end
from .script import Play, settle

QUIET = 0.012
"""Seconds without a change that count as rest."""

LOOKS = 20
"""How often the world may come to rest with calls that do not do what they must, before that is a fault: it may be a
thread that has not run yet. And not before PATIENCE is over."""

PATIENCE = 5.0
"""Seconds."""

ENDS = st.sampled_from([0, 1])
CHOICES = [1, 100, 3000, 70_000, 400_000, 3_000_000]
SIZES = st.sampled_from(CHOICES)

IN_PROGRESS = st.sampled_from([(), ("recv",), ("poll",), ("sendall",), ("recv", "sendall")])

SURE = 32_000
"""So many bytes on their way have arrived, whatever the buffers hold: a reset takes none of them back."""

HOLDERS = 2
"""Forked children that hold an end at once."""

RECEIVES = {"no": {"eof"}, "may": {"eof", "ECONNRESET"}, "must": {"ECONNRESET"}, "told": {"eof"}}
SENDS = {"no": {"EPIPE"}, "may": {"done", "EPIPE", "ECONNRESET"}, "must": {"ECONNRESET"}, "told": {"EPIPE"}}
HALF_CLOSES = {"no": {"ok"}, "may": {"ok", "ENOTCONN"}, "must": {"ENOTCONN"}, "told": {"ENOTCONN"}}
"""What calls give when nobody holds the peer any more, by what is known of a reset (`Side.error`)."""


@dataclass
class Side:
    """What is known of one end."""

    ended: bool = False
    """It has half-closed."""
    left: bool = False
    gone: str = ""
    """Whether and how the process that began with it gave it up: "close", "reset" (SO_LINGER 0) or "killed"."""
    dead: bool = False
    """Its process is killed."""
    last_killed: bool = False
    """The last process that held it was killed, however it was closed before."""
    over: bool = False
    """Nobody holds it: it is gone, no call in progress is left of it, and no forked child."""
    holders: list[int] = field(default_factory=list)
    blocked: set[str] = field(default_factory=set)
    """Its calls that were in progress at the last rest."""
    timed: bool = False
    """Whether one of its calls began with a timeout."""
    broken: int = 0
    """Bytes of a `sendall` that its own half-close or its death broke off: some of them arrive."""
    error: str = "no"
    """Of the peer's reset: there is none, there may be one, the next call must tell it, or one has told it."""
    drawn: bool = False
    """It has sent to a peer that was over, which draws a reset."""
    cut: bool = False
    """Of what the peer has sent, the last may be lost."""
    last: tuple[int, int] = (0, 0)
    """Bytes (sent, received) before it was killed."""


class Conversation(RuleBasedStateMachine):
    """Rules over one pair; `kind` is set by a subclass. End 0 is near."""

    kind: str
    processes: bool
    """Whether far lives in a process of its own. Only then can it be killed, and only then do forked children hold
    ends: one that holds both would be another test."""
    used: set[str]
    """Names of the declared differences that were seen."""
    visited: collections.Counter[str]
    """What has happened to an end and what was in progress, and what its peer's calls then gave."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = contextlib.ExitStack()
        self.resources.enter_context(configured(self.kind))
        kind = KINDS[self.kind]
        make_far = remote_end if self.processes else End
        far: Any = make_far("far", kind.far_fastsock, True, 0)
        self.resources.callback(far.over)
        near = End("near", kind.near_fastsock, True, 0)
        self.resources.callback(near.over)
        self.ends = [near, far]
        self.sides = [Side(), Side()]
        self.resources.callback(self.let_go)
        self.sizes: list[int] = [0, 0]
        near.connect(far.listen())
        far.accept()
        if kind.moved:
            until(self.step_to_the_ring, "both ends are on the ring")
        self.life = 0

    def step_to_the_ring(self) -> bool:
        for sender, receiver in (self.ends, reversed(self.ends)):
            sender.put(4)
            until(
                lambda sender=sender, receiver=receiver: receiver.drain() and not self.behind(sender, receiver), "all"
            )
        return all(end.path() == "ring" for end in self.ends)

    def behind(self, sender: Any, receiver: Any) -> int:
        return sender.counts()[0] - receiver.counts()[1]

    @initialize(life=st.integers(1, 8))
    def begin(self, life: int) -> None:
        """So many steps go by before an end may close, or most sequences would be short."""
        self.life = life

    # ---- the truth

    def counts(self, end: int) -> tuple[int, int]:
        return self.sides[end].last if self.sides[end].dead else self.ends[end].counts()

    def unread(self, end: int) -> int:
        """Bytes certainly on their way to this end, those of a `sendall` in progress left out."""
        return self.counts(1 - end)[0] - self.counts(end)[1]

    def calls(self, end: int) -> dict[str, str]:
        return {} if self.sides[end].dead else self.ends[end].calls()

    def must_be(self, end: int, name: str, state: str, others: set[str]) -> bool:
        """Whether the state of a call at rest is what it must be; `others` are the states of the end's other calls."""
        mine, peers = self.sides[end], self.sides[1 - end]
        if peers.over:
            return self.must_be_alone(end, name, state, others)
        receives = name in ("recv", "poll")
        coming = self.unread(end) > 0
        if receives and state == "blocked":  # a send in progress at the peer has something to give
            return not coming and not peers.ended and "sendall" not in peers.blocked
        if name == "recv":
            return state == "data" or (state == "eof" and peers.ended and self.unread(end) <= 0)
        if name == "poll":
            return state.startswith("IN")
        if state == "blocked":
            return not mine.ended and "recv" not in peers.blocked and bool(peers.gone or self.ends[1 - end].has_bytes())
        return state == ("EPIPE" if mine.ended else "done") or (state == "done" and mine.ended)

    def must_be_alone(self, end: int, name: str, state: str, others: set[str]) -> bool:
        """The same where nobody holds the peer any more: nothing blocks."""
        mine = self.sides[end]
        if name == "poll":
            return state.startswith("IN")
        if name == "recv" and state == "data":
            return True
        if mine.error == "must" and "ECONNRESET" in others:
            allowed = {"eof"} if name == "recv" else {"EPIPE"}
        elif name == "recv":
            allowed = RECEIVES[mine.error]
        else:
            allowed = self.sends(end) | ({"EPIPE"} if mine.ended else set()) | (set() if mine.drawn else {"done"})
        if name == "sendall" and mine.gone:  # what was sent in part Python goes on to send, to a number that is closed
            allowed = allowed | {"EBADF"}
        return self.allows(end, name, allowed, state)

    def allows(self, end: int, what: str, allowed: set[str], state: str) -> bool:
        """Whether TCP gives this, or a declared difference covers it."""
        if state in allowed:
            return True
        mine, peers = self.sides[end], self.sides[1 - end]
        words = [f"kind={self.kind}", f"peer={'killed' if peers.last_killed else peers.gone}", f"error={mine.error}"]
        words += [word for word in ("ended", "left", "drawn", "cut") if getattr(mine, word)]
        words += [f"peer-{word}" for word in ("ended", "left") if getattr(peers, word)]
        declared = [d for d in IN_SEQUENCES if self.covers(d, " ".join(words), what, allowed, state)]
        self.used.update(d.name for d in declared)
        return bool(declared)

    def covers(self, difference: Difference, where: str, what: str, allowed: set[str], state: str) -> bool:
        return any(difference.covers(where, f"{what} {tcp}", f"{what} {state}") for tcp in allowed)

    @invariant()
    def every_call_is_where_it_must_be(self) -> None:
        self.life -= 1
        wrong: list[Any] = []
        limit = time.monotonic() + PATIENCE
        for look in itertools.count(1):
            self.settle()
            now = [self.calls(end) for end in (0, 1)]
            for end in (0, 1):
                self.sides[end].blocked = {name for name, state in now[end].items() if state == "blocked"}
            for end in (0, 1):
                self.note_end_of_life(end, surely=False)
            wrong = [
                (end, name, state)
                for end in (0, 1)
                for name, state in now[end].items()
                if not self.must_be(end, name, state, {now[end][other] for other in now[end] if other != name})
            ]
            if not wrong or (look >= LOOKS and time.monotonic() > limit):
                break
        assert not wrong, f"{wrong}\n{self.sides}\n" + "\n".join(end.describe() for end in self.alive())
        for end in (0, 1):
            for name, state in now[end].items():
                if state != "blocked":
                    self.note_outcome(end, name, state)
                    self.ends[end].forget(name)
        assert not any(end.complaint() for end in self.alive()), [end.complaint() for end in self.alive()]

    def note_outcome(self, end: int, name: str, state: str) -> None:
        side = self.sides[end]
        if self.sides[1 - end].over:
            self.visited[f"peer {self.sides[1 - end].gone}: {name} {state}"] += 1
        if state == "ECONNRESET":
            side.error = "told"
        if name == "sendall":
            if state != "done":
                side.broken += self.sizes[end]
            self.note_sent(end)

    def note_sent(self, end: int) -> None:
        side = self.sides[end]
        if self.sides[1 - end].over:
            side.drawn = True
            if self.end_may_wait(end):
                side.cut = True
                side.error = "may" if side.error == "no" else side.error

    def end_may_wait(self, end: int) -> bool:
        """Whether the peer's FIN may stand behind bytes for which there is no room here: a reset overtakes it."""
        return bool(self.unread(end) > SURE or self.sides[1 - end].broken)

    def sends(self, end: int) -> set[str]:
        """What a send gives when nobody holds the peer any more, and it is not the first."""
        error = self.sides[end].error
        return SENDS["may" if error == "no" and self.end_may_wait(end) else error]

    def note_end_of_life(self, end: int, surely: bool) -> None:
        """If nobody holds the end any more: what the peer will hear. `surely`: it ends here, and not with a call."""
        mine, peers = self.sides[end], self.sides[1 - end]
        if not mine.gone or mine.over or mine.holders or mine.blocked:
            return
        mine.over = True
        if peers.over:
            return
        has_unread = self.unread(end) > 0 or "sendall" in peers.blocked
        maybe_unread = peers.broken or not surely
        resets = mine.gone == "reset" or has_unread
        peers.cut = not surely or bool(resets and (mine.broken or self.unread(1 - end) > SURE))
        if maybe_unread or (resets and mine.ended):
            peers.error = "may"
        elif resets:
            peers.error = "must"

    def note_event(self, what: str, end: int) -> None:
        calls = ["+".join(sorted(side.blocked)) or "none" for side in (self.sides[end], self.sides[1 - end])]
        held = "held, " if self.sides[end].holders else ""
        self.visited[f"{what}: {held}calls of its own {calls[0]}, of the peer {calls[1]}"] += 1

    # ---- the rules

    def alive(self) -> list[Any]:
        return [end for end, side in zip(self.ends, self.sides, strict=True) if not side.dead]

    def settle(self) -> None:
        settle([Play("", None, near=end) for end in self.alive()], QUIET)  # type: ignore[arg-type]

    def act(self, end: int, what: str) -> str:
        """Has a time limit: none of these calls may block."""
        if isinstance(self.ends[end], Remote):
            return self.ends[end].act(what)
        return Task(self.ends[end].act, what).result()

    def free(self, end: int, *names: str) -> bool:
        """Whether the end can begin such a call."""
        return not self.sides[end].gone and not {*names} & {*self.sides[end].blocked}

    def start(self, end: int, name: str, timeout: float | None) -> None:
        side = self.sides[end]
        side.timed = timeout is not None or (side.timed and bool(side.blocked))
        self.ends[end].start(name, timeout)
        side.blocked.add(name)

    @rule(end=ENDS, name=st.sampled_from(["recv", "poll"]), timeout=st.sampled_from([None, 60.0]))
    def receive(self, end: int, name: str, timeout: float | None) -> None:
        if self.free(end, "recv", "poll", "sendall"):
            self.start(end, name, timeout)
        elif self.free(end, "recv", "poll"):
            self.start(end, name, self.ends[end].timeout())

    @rule(end=ENDS, size=SIZES)
    def send(self, end: int, size: int) -> None:
        if self.free(end, "sendall") and not self.sides[end].ended:
            self.sizes[end] = size
            self.ends[end].set_sendall_size(size)
            self.start(end, "sendall", self.ends[end].timeout())

    @rule(end=ENDS)
    def send_to_nobody(self, end: int) -> None:
        """Some bytes that are surely taken, where they are the first behind a close that left nothing unread."""
        side = self.sides[end]
        if self.free(end, "sendall") and not side.ended and self.sides[1 - end].over:
            allowed = {"done"} if not side.drawn and side.error == "no" else self.sends(end)
            what = self.ends[end].put(10).replace("ok", "done")
            assert self.allows(end, "send", allowed, what), (what, allowed, self.sides)
            self.note_outcome(end, "put", what)
            self.note_sent(end)

    @rule(end=ENDS)
    def read_what_is_there(self, end: int) -> None:
        if self.free(end, "recv"):
            self.read(end)

    def read(self, end: int) -> str:
        _, what = self.ends[end].drain()
        if self.sides[1 - end].over:
            allowed = RECEIVES[self.sides[end].error]
            assert self.allows(end, "read", allowed, what), (what, allowed, self.sides)
            self.note_outcome(end, "read", what)
            self.all_has_come(end)
        elif self.sides[1 - end].gone and self.sides[1 - end].blocked:  # what we read may end its last call
            assert what in ("EAGAIN", "eof", "ECONNRESET"), what
        else:
            assert what == "EAGAIN" or (what == "eof" and self.sides[1 - end].ended), what
        return what

    def all_has_come(self, end: int) -> None:
        """The stream has ended."""
        sent, received = self.counts(1 - end)[0], self.counts(end)[1]
        least = 0 if self.sides[end].cut else sent
        assert least <= received <= sent + self.sides[1 - end].broken, (
            f"end {end} got {received} of {sent}: {self.sides}"
        )

    @rule(end=ENDS)
    def half_close(self, end: int) -> None:
        side = self.sides[end]
        if not side.ended and not side.gone:
            allowed = HALF_CLOSES[side.error] if self.sides[1 - end].over else {"ok"}
            if side.drawn:
                allowed = {*allowed, "ENOTCONN"} - ({"ok"} if side.error == "no" else set())
            side.ended = True
            what = self.act(end, "shut_wr")
            assert self.allows(end, "shutdown", allowed, what), (what, allowed, self.sides)

    @rule(end=ENDS)
    def half_close_against_a_send(self, end: int) -> None:
        """Rare by chance alone: a send that blocks, and whose peer has said all that it has to say."""
        if self.free(end, "sendall") and not any(side.ended or side.gone for side in self.sides):
            self.send(end, max(CHOICES))
            self.settle()
            self.half_close(1 - end)

    @rule(end=ENDS)
    def fork(self, end: int) -> None:
        if not self.sides[end].gone:
            self.ends[end].child_exits()

    @rule(end=ENDS)
    def leave(self, end: int) -> None:
        # (No precondition: what is in progress depends on time, and hypothesis replays sequences.)
        if not any(side.blocked or side.gone for side in self.sides) and not self.sides[end].left:
            self.sides[end].left = True
            assert self.act(end, "leave") == "ok"

    @rule(end=ENDS)
    def hold(self, end: int) -> None:
        """A forked child inherits the end, and does nothing."""
        side = self.sides[end]
        if self.processes and not side.gone and len(side.holders) < HOLDERS:
            side.holders.append(self.ends[end].hold())

    @rule(end=ENDS)
    def kill_a_holder(self, end: int) -> None:
        side = self.sides[end]
        if side.holders:
            end_holder(side.holders.pop())
            side.last_killed = bool(side.gone) and not side.holders and not side.blocked
            self.note_end_of_life(end, surely=True)

    @rule(end=ENDS, how=st.sampled_from(["close", "reset"]))
    def close(self, end: int, how: str) -> None:
        """With calls in progress, too: they keep the connection open, which ends with them."""
        side = self.sides[end]
        if side.gone or self.life > 0:
            return
        if side.blocked and not self.outlived_by_its_calls(end):
            return
        surely = not side.blocked
        self.note_event(how, end)
        side.gone = how
        assert self.act(end, how) == "ok"
        self.note_end_of_life(end, surely)

    def outlived_by_its_calls(self, end: int) -> bool:
        """Whether the calls in progress go on as on TCP when the end is closed (of the others `differences.py` tells).
        Of two closed ends with calls in progress, both would wait for ever."""
        side = self.sides[end]
        return not (side.timed or "poll" in side.blocked or self.kind == "midstream" or self.sides[1 - end].gone)

    @rule()
    def kill(self) -> None:
        side = self.sides[1]
        if self.processes and not side.dead and self.life <= 0:
            self.note_event("killed", end=1)
            side.last, side.dead = self.counts(1), True
            if "sendall" in side.blocked:
                side.broken += self.sizes[1]
            side.blocked = set()
            side.last_killed = side.last_killed or not side.over
            side.gone = side.gone or "killed"
            self.ends[1].killed()
            self.note_end_of_life(1, surely=True)

    @rule(end=ENDS, how=st.sampled_from(["close", "reset", "kill"]), mine=IN_PROGRESS, its=IN_PROGRESS)
    def go_in_the_middle(self, end: int, how: str, mine: tuple[str, ...], its: tuple[str, ...]) -> None:
        """Rare by chance alone: an end that goes with calls in progress at both."""
        if any(side.gone for side in self.sides):
            return
        for at, names in ((end, mine), (1 - end, its)):
            for name in names:
                self.send_much(at) if name == "sendall" else self.receive(at, name, None)
        self.every_call_is_where_it_must_be()
        self.life = 0
        self.kill() if how == "kill" else self.close(end, how)

    def send_much(self, end: int) -> None:
        self.ends[end].never_wait()
        self.send(end, max(CHOICES))

    # ---- the end

    def let_go(self) -> None:
        for side in self.sides:
            while side.holders:
                end_holder(side.holders.pop())

    def teardown(self) -> None:
        with self.resources:
            for end in (0, 1):
                while self.sides[end].holders:
                    self.kill_a_holder(end)
            for end in (0, 1):
                self.half_close(end)
            self.every_call_is_where_it_must_be()  # notes what the half-closes have broken off
            for end in (0, 1):
                for _ in range(LOOKS * 15):
                    self.settle()
                    if self.sides[end].gone or (self.free(end, "recv") and self.read(end) != "EAGAIN"):
                        break
                    self.every_call_is_where_it_must_be()
                self.every_call_is_where_it_must_be()  # notes what these reads have ended
                if not self.sides[end].gone:
                    self.all_has_come(end)
            self.every_call_is_where_it_must_be()
            assert not any(side.blocked for side in self.sides)
