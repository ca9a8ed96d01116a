"""Connections on the ring in an event set of the program's selectors."""

from weakref import KeyedRef

class Member:
    """A connection in an event set."""

    def admit(self) -> None:
        """The connection is about to attach: takes a place in the set. OSError without."""
    def dismiss(self) -> None:
        """It has not attached."""
    def enter(self) -> None:
        """It is attached: from now on it is asked in memory."""
    def stand_aside(self) -> None:
        """From now on the kernel tells of it, to everybody who has its number."""
    def part(self) -> None:
        """It leaves the set: the program has unregistered it, or the connection ends."""

class EventSet:
    """The members of one object that the program waits with."""

    @property
    def aside(self) -> bool:
        """From now on the kernel tells of all connections: others wait for the same epoll."""

alive: dict[int, KeyedRef[int, EventSet]]
"""The event sets of this process, by their addresses."""

def forget(reference: KeyedRef[int, EventSet]) -> None:
    """The event set is gone."""

def before_fork() -> None:
    """A fork shares the kernel's registrations with the child: from now on all members stand aside."""

def after_fork_in_parent() -> None:
    """The same for sets that were made meanwhile."""

def after_fork_in_child() -> None:
    """The threads that slept or polled are the parent's."""
