"""When the sessions of a service begin to look for their peer (upgrade_delay.c), on histories that are made up, by
what they would have cost."""

import ctypes
import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from native.ring import library

MOVE_AFTER = 8
NEVER = 1 << 60
NOT_SOUGHT, IN_VAIN, MOVED = range(3)


LENGTHS = 14  # FS_SESSION_LENGTHS


class SessionStats(ctypes.Structure):
    """struct fs_session_stats."""

    _fields_ = [
        *((name, ctypes.c_double * LENGTHS) for name in ("ended", "operations")),
        *((name, ctypes.c_double) for name in ("found", "missed", "calls", "messages")),
        ("noted", ctypes.c_uint32),
        ("later", ctypes.c_int64),
        ("lasting", ctypes.c_double),
        ("sessions", ctypes.c_uint32),
    ]

    def note(self, operations: int, sought: int = NOT_SOUGHT, calls: int = 0, messages: int = 0) -> None:
        service, count = Service(ctypes.pointer(self)), ctypes.c_uint64
        library().fs_note_session(
            ctypes.byref(service), ctypes.c_int64(operations), sought, count(calls), count(messages)
        )


class Service(ctypes.Structure):
    """struct fs_service."""

    _fields_ = [("stats", ctypes.POINTER(SessionStats)), ("linked", ctypes.c_int), ("tried", ctypes.c_int)]


@dataclass(frozen=True)
class World:
    """What a session costs, in operations on kernel TCP. Not quite what the policy believes it costs."""

    move: float = 16
    search: float = 6
    gain: float = 0.7
    foreign: float = 0.0
    """The share of sessions whose peer has no fastsock."""
    slept: float = 1 / 3
    """The share of messages on the ring that cost a system call."""

    def cost(self, length: int, start: int, foreign: bool) -> float:
        """Of a session of so many operations that looks for its peer after `start`."""
        if length <= start:
            return length
        if foreign:
            return length + self.search
        return length + self.search + self.move - (length - start) * self.gain


History = list[tuple[int, bool]]
"""Sessions: operations, and whether the peer has no fastsock."""


def lived(world: World, lengths: Iterable[int], chance: random.Random) -> tuple[float, History, SessionStats]:
    """What the policy pays for these sessions, what they were, and what it has learned."""
    sessions = SessionStats()
    paid = 0.0
    history = []
    for length in lengths:
        foreign = chance.random() < world.foreign
        start = max(MOVE_AFTER, sessions.later)
        paid += world.cost(length, start, foreign)
        history.append((length, foreign))
        if length <= start:
            sessions.note(length)
        elif foreign:
            sessions.note(length, IN_VAIN)
        else:
            messages = length - start
            sessions.note(length, MOVED, int(messages * world.slept), messages)
    return paid, history, sessions


def best_fixed(world: World, history: History) -> float:
    """What the best rule "after so many operations" would have paid, which was chosen with the history known."""
    starts = [MOVE_AFTER * 2**i for i in range(14)] + [NEVER]
    return min(sum(world.cost(length, start, foreign) for length, foreign in history) for start in starts)


def service(chance: random.Random) -> list[int]:
    """Lengths of sessions of a few kinds, in turn or mixed."""
    kinds = [int(2 ** chance.uniform(3, 12)) for _ in range(chance.randint(1, 4))]
    weights = [chance.random() for _ in kinds]
    return [max(1, int(chance.gauss(mean, mean / 8))) for mean in chance.choices(kinds, weights, k=400)]


@pytest.mark.parametrize(("move", "most"), [(8, 1.25), (16, 1.1), (32, 1.35)])
@pytest.mark.parametrize("foreign", [0.0, 0.5, 1.0])
def test_it_pays_little_more_than_the_best_fixed_rule(move: int, most: float, foreign: float) -> None:
    """Whatever the sessions are like, also where a move costs half or twice of what is believed."""
    chance = random.Random(f"{move} {foreign}")
    world = World(move=move, foreign=foreign)
    for _ in range(40):
        paid, history, _ = lived(world, service(chance), chance)
        best = best_fixed(world, history)
        # (A session that is believed to be long pays one move too many, some before anything is known.)
        assert paid <= most * best + 20 * (world.move + world.search), (paid, best, history[:20])


@pytest.mark.parametrize(("first", "then"), [(16, 2000), (2000, 16), (64, 5000), (5000, 64)])
def test_what_was_is_forgotten(first: int, then: int) -> None:
    world, chance = World(), random.Random(0)
    paid, history, _ = lived(world, [first] * 200 + [then] * 200, chance)
    best = best_fixed(world, history[:200]) + best_fixed(world, history[200:])
    assert paid <= 1.1 * best + 20 * (world.move + world.search)


@pytest.mark.parametrize("length", [1000, 4000])
def test_long_sessions_look_as_early_as_the_settings_let_them(length: int) -> None:
    assert lived(World(), [length] * 50, random.Random(0))[2].later <= MOVE_AFTER


@pytest.mark.parametrize("length", [8, 16, 24, 32])
def test_short_sessions_do_not_look_at_all(length: int) -> None:
    _, _, sessions = lived(World(), [length] * 20, random.Random(0))
    assert sessions.later >= length


def test_a_few_sessions_prove_nothing() -> None:
    assert lived(World(), [16, 16], random.Random(0))[2].later == 0


def test_those_that_never_look_teach_nothing() -> None:
    assert lived(World(), [4] * 100, random.Random(0))[2].later == 0


def test_behind_short_sessions_long_ones_look_as_soon_as_they_are_told_apart() -> None:
    _, _, sessions = lived(World(), [14, 3000] * 50, random.Random(0))
    assert 14 < sessions.later <= 32


def test_among_foreign_peers_few_look_and_some_try_again() -> None:
    sessions = lived(World(foreign=1.0), [100] * 200, random.Random(0))[2]
    assert sessions.later > 100
    # A long session among them finds its peer, and so do others from then on.
    for _ in range(300):
        if sessions.later < 5000:
            sessions.note(5000, MOVED, 100, 5000)
        else:
            sessions.note(5000)
    assert sessions.later <= MOVE_AFTER


def test_where_all_waits_are_slept_through_sessions_have_to_be_longer() -> None:
    awake = lived(World(slept=0), [50] * 100, random.Random(0))[2]
    asleep = lived(World(slept=1, gain=0.4), [50] * 100, random.Random(0))[2]
    assert awake.later <= MOVE_AFTER < 50 <= asleep.later
