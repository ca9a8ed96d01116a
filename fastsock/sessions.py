"""When moving pays: what the connections of a port have lived for.

To move a connection costs as much as some dozens of small requests return. A session that ends before that loses by it,
and the sessions of one service are alike. So each port remembers whether the sessions on it were short, of those that
got as far as to look for their peer; where they were, the next ones look later. Both ends see the same sessions.
"""

from __future__ import annotations

from collections import OrderedDict

from fastsock._native.vi import Endpoint

__all__ = ["PAYS", "Habit", "delay"]

PAYS = 128
"""Operations of a session from which on a move pays at either end: 64 round trips, or 40 requests of `http.client`.
(Sessions of 16 such requests that moved ran at half of TCP's speed on 2 CPUs, those of 50 at 0.8 of it.)"""

BELIEVED = 3  # short sessions more than long ones: a number that the kernel chose for a client comes again now and then
SURE = 4  # short sessions in a row, or long ones, after which one of the other kind changes nothing
PORTS = 1024  # remembered at a time: most of them are the other end's, and never seen again


class Habit:
    """What the sessions of one port are like: their `note` is called as they end, with their operations."""

    __slots__ = ("shorter",)

    def __init__(self) -> None:
        self.shorter = 0  # more than longer ones, between -SURE and SURE

    def note(self, operations: int) -> None:
        """A session has ended after so many operations of this end."""
        if operations < PAYS:
            self.shorter = min(self.shorter + 1, SURE)
        else:
            self.shorter = max(self.shorter - 1, -SURE)


class _Both:
    """A session's two ports: which of them is the service's is not told."""

    __slots__ = ("first", "second")

    def __init__(self, first: Habit, second: Habit) -> None:
        self.first = first
        self.second = second

    def note(self, operations: int) -> None:
        self.first.note(operations)
        self.second.note(operations)


_habits: OrderedDict[int, Habit] = OrderedDict()


def delay(endpoint: Endpoint, ports: tuple[int, int]) -> bool:
    """A connection is about to look for its peer. Whether it should not do so before its operation PAYS, as sessions of
    these ports are short. Its own end is noted from now on."""
    if endpoint.session is not None:
        return False  # it has been delayed, and lives on
    first, second = (_habit_of(port) for port in ports)
    endpoint.session = _Both(first, second)
    return max(first.shorter, second.shorter) >= BELIEVED and endpoint.operations < PAYS


def _habit_of(port: int) -> Habit:
    habit = _habits.get(port)
    if habit is None:
        habit = _habits[port] = Habit()
        if len(_habits) > PORTS:
            _habits.popitem(last=False)
    else:
        _habits.move_to_end(port)
    return habit
