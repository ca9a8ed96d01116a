"""Random sequences of calls in progress at both ends, and of what happens meanwhile, against a simple truth.

The truth is two numbers for each direction, what was sent and what was received, and whether it has ended. From them
follows what every call in progress must do once the world is at rest. Nothing here resets a connection, so that every
byte arrives; the same rules hold on kernel TCP, where they run as well.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pairs import KINDS, configured, move

from .ends import End
from .script import Play, settle

QUIET = 0.012
"""Seconds without a change that count as rest."""

LOOKS = 20
"""How often the world may come to rest with calls that do not do what they must, before that is a fault: it may be a
thread that has not run yet."""

ENDS = st.sampled_from([0, 1])
CHOICES = [1, 100, 3000, 70_000, 400_000, 3_000_000]
SIZES = st.sampled_from(CHOICES)


class Conversation(RuleBasedStateMachine):
    """Rules over one pair; `kind` is set by a subclass. End 0 is near."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.resources = contextlib.ExitStack()
        self.resources.enter_context(configured(self.kind))
        kind = KINDS[self.kind]
        self.ends = [End("near", kind.near_facade, True, 0), End("far", kind.far_facade, True, 0)]
        port = self.ends[1].listen()
        self.ends[0].connect(port)
        self.ends[1].accept()
        for end in self.ends:
            self.resources.callback(end.over)
        if kind.moved:
            move(self.ends[0].sock, self.ends[1].sock)
        self.ended = [False, False]
        """Per end, whether it has half-closed."""
        self.left = [False, False]
        self.blocked: list[set[str]] = [set(), set()]
        """Per end, its calls that were in progress at the last rest."""
        self.broken = [0, 0]
        """Per end, bytes of a `sendall` that its own half-close broke off: some of them arrive."""

    # ---- the truth

    def unread(self, end: int) -> int:
        """Bytes certainly on their way to this end, those of a `sendall` in progress left out."""
        return self.ends[1 - end].sent - self.ends[end].received

    def must_be(self, end: int, name: str, state: str) -> bool:
        """Whether the state of a call at rest is what it must be."""
        receives = name in ("recv", "poll")
        peer, coming = self.blocked[1 - end], self.unread(end) > 0
        if receives and state == "blocked":  # a send in progress at the peer has something to give
            return not coming and not self.ended[1 - end] and "sendall" not in peer
        if name == "recv":
            return state == "data" or (state == "eof" and self.ended[1 - end] and self.unread(end) <= 0)
        if name == "poll":
            return state.startswith("IN")
        if state == "blocked":
            return not self.ended[end] and "recv" not in peer and self.ends[1 - end].has_bytes()
        return state == ("EPIPE" if self.ended[end] else "done") or (state == "done" and self.ended[end])

    @invariant()
    def every_call_is_where_it_must_be(self) -> None:
        for _ in range(LOOKS):
            settle([Play("", None, near=end) for end in self.ends], QUIET)  # type: ignore[arg-type]
            states = [(end, name, state) for end in (0, 1) for name, state in self.ends[end].calls().items()]
            self.blocked = [{name for at, name, state in states if at == end and state == "blocked"} for end in (0, 1)]
            wrong = [found for found in states if not self.must_be(*found)]
            if not wrong:
                break
        assert not wrong, f"{wrong}\n" + "\n".join(end.describe() for end in self.ends)
        assert not any(end.wrong for end in self.ends), [end.wrong for end in self.ends]
        for end, name, state in states:
            if state != "blocked":
                if state == "EPIPE":
                    self.broken[end] = self.ends[end].sendall_size
                del self.ends[end].started[name]

    # ---- the rules

    def free(self, end: int, *names: str) -> bool:
        return not {*names} & {*self.ends[end].started}

    @rule(end=ENDS, name=st.sampled_from(["recv", "poll"]), timeout=st.sampled_from([None, 60.0]))
    def receive(self, end: int, name: str, timeout: float | None) -> None:
        if self.free(end, "recv", "poll", "sendall"):
            self.ends[end].start(name, timeout)
        elif self.free(end, "recv", "poll"):
            self.ends[end].start(name, self.ends[end].sock.gettimeout())

    @rule(end=ENDS, size=SIZES)
    def send(self, end: int, size: int) -> None:
        if self.free(end, "sendall") and not self.ended[end]:
            self.ends[end].sendall_size = size
            self.ends[end].start("sendall", self.ends[end].sock.gettimeout())

    @rule(end=ENDS)
    def read_what_is_there(self, end: int) -> None:
        if self.free(end, "recv"):
            _, what = self.ends[end].drain()
            assert what == "EAGAIN" or (what == "eof" and self.ended[1 - end]), what

    @rule(end=ENDS)
    def half_close(self, end: int) -> None:
        if not self.ended[end]:
            self.ended[end] = True
            assert self.ends[end].act("shut_wr") == "ok"

    @rule(end=ENDS)
    def half_close_against_a_send(self, end: int) -> None:
        """Rare by chance alone: a send that blocks, and whose peer has said all that it has to say."""
        if self.free(end, "sendall") and not any(self.ended):
            self.send(end, max(CHOICES))
            settle([Play("", None, near=each) for each in self.ends], QUIET)  # type: ignore[arg-type]
            self.half_close(1 - end)

    @rule(end=ENDS)
    def fork(self, end: int) -> None:
        self.ends[end].child_exits()

    @rule(end=ENDS)
    def leave(self, end: int) -> None:
        # (No precondition: what is in progress depends on time, and hypothesis replays sequences.)
        if not self.left[end] and not any(each.started for each in self.ends):
            self.left[end] = True
            self.ends[end].leave()

    # ---- the end

    def teardown(self) -> None:
        with self.resources:
            for end in (0, 1):
                self.half_close(end)
            self.every_call_is_where_it_must_be()  # notes what the half-closes have broken off
            for end in (0, 1):
                for _ in range(LOOKS * 15):
                    settle([Play("", None, near=each) for each in self.ends], QUIET)  # type: ignore[arg-type]
                    if self.free(end, "recv") and self.ends[end].drain()[1] == "eof":
                        break
                    self.every_call_is_where_it_must_be()
                sent, received = self.ends[1 - end].sent, self.ends[end].received
                assert sent <= received <= sent + self.broken[1 - end], f"end {end} got {received} of {sent}"
            self.every_call_is_where_it_must_be()
            assert not any(end.started for end in self.ends)


@pytest.fixture
def patched(kind: str) -> Iterator[None]:
    """Forks are seen."""
    if not KINDS[kind].near_facade:
        yield
        return
    fastsock = importlib.import_module("fastsock")
    fastsock.patch(**KINDS[kind].settings)
    try:
        yield
    finally:
        fastsock.unpatch()


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # 3.12 warns of forks with threads; the child runs none
@pytest.mark.parametrize("kind", ["kernel", "ring", "midstream"])
@pytest.mark.usefixtures("patched")
def test_any_sequence_of_calls_in_progress_agrees_with_the_model(kind: str) -> None:
    run_state_machine_as_test(
        type("Conversation", (Conversation,), {"kind": kind}),
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            phases=[Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
