"""The memory that a connection shares with its peer: made or taken over, counted against the cap, and parked for the
next connection.

A region with what belongs to it is a `Kit`. The search (rendezvous.py) gets one from here and attaches the endpoint
to it, and the endpoint releases it at its end. The seeker parks here by the peer's process, the publisher in the
table of its connection thread.
"""

from __future__ import annotations

import os

import attrs

from fastsock import config
from fastsock._native import connector
from fastsock._native.vi import Endpoint

__all__ = [
    "Kit", "Memory", "MemoryCapReached", "arrived_kit", "drop_parked", "drop_parked_by_seeker", "new_kit", "park",
    "parked_kit",
]  # fmt: skip


# ---- the cap -----------------------------------------------------------------------------------------------


class MemoryCapReached(Exception):
    """The memory cap leaves no room for another region."""


class Memory:
    """Shared memory mapped by this process, against the cap."""

    used = 0

    @classmethod
    def take(cls, size: int) -> None:
        if cls.used + size > config.active().memory_cap:
            raise MemoryCapReached
        cls.used += size

    @classmethod
    def give_back(cls, size: int) -> None:
        cls.used -= size


# ---- one region --------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Kit:
    """A region mapped here with its two eventfds, in the hands of one connection or parked for the next one.

    `peer`: the publishing process, for the seeker's cache; None on the publisher's side, whose cache is the
    connection thread's."""

    memory: int
    size: int
    side: int
    wake_fd: int
    peer_fd: int
    id: bytes
    peer: int | None
    turn: int  # of connector.descriptor_turn, when the eventfds were made
    window: int = 0  # known once attached
    endpoint: Endpoint | None = None

    def attach(self, endpoint: Endpoint, settings: config.Settings) -> None:
        """Attaches the endpoint, which consents with that and cannot take it back. So everything that can fail comes
        before: ValueError if the region is unsound, OSError or MemoryError if there are no resources for it; the
        endpoint is not attached then."""
        threshold = settings.ack_threshold if settings.delayed_ack else 1
        combine = settings.combine_limit if settings.combine else 0
        queue = endpoint.queue
        connector.expect_asks(endpoint, self.side, self.id)
        try:
            if queue is not None:
                queue.watch_eventfd(self.wake_fd)
            endpoint.attach(
                self.memory, self.size, self.side, self.wake_fd, self.peer_fd, threshold, combine,
                settings.combine_when_full,
            )  # fmt: skip
        except BaseException:
            connector.ignore_asks(endpoint)
            if queue is not None:
                queue.ignore_eventfd(self.wake_fd)
            raise
        endpoint.kit = self
        self.endpoint = endpoint
        self.window = endpoint.window
        connector.answer_asks(self.memory, self.side)

    def answer_in_child(self) -> None:
        """After a fork: from now on the connection thread of this process answers the peer's requests. OSError or
        MemoryError if it cannot."""
        assert self.endpoint is not None
        connector.expect_asks(self.endpoint, self.side, self.id)
        connector.answer_asks(self.memory, self.side)

    def ask_for_doorbell(self) -> None:
        connector.ask(self.memory, self.side, self.id)

    def before_end(self) -> None:
        if self.endpoint is not None:
            connector.ignore_asks(self.endpoint)
            self.endpoint = None

    def release(self, recyclable: bool) -> None:
        """The connection has ended: parks the region if both sides may come back to it, else gives it back."""
        if not recyclable or self.is_lost():
            self.discard()
            return
        connector.mark_done(self.memory, self.size, self.side, self.window)
        if self.peer is None:
            Memory.give_back(connector.park(self.memory, self.size, self.wake_fd, self.peer_fd, self.turn, self.id))
        else:
            park(self)

    def is_lost(self) -> bool:
        """Whether the program has closed our descriptors since: the numbers of the eventfds are somebody else's."""
        return self.turn != connector.descriptor_turn()

    # Each part is forgotten before it is given back: between two parts another thread may fork, and its child, in which
    # this one is not, gives back what is left. What was given back may be a stranger's.

    def discard(self) -> None:
        self.unmap()
        size, self.size = self.size, 0
        Memory.give_back(size)

    def unmap(self) -> None:
        memory, self.memory = self.memory, 0
        if memory:
            connector.unmap_region(memory, self.size)
        lost = self.is_lost()
        wake_fd, self.wake_fd = self.wake_fd, -1
        if wake_fd >= 0 and not lost:
            connector.close_eventfd(wake_fd)
        peer_fd, self.peer_fd = self.peer_fd, -1
        if peer_fd >= 0 and not lost:
            connector.close_eventfd(peer_fd)


def new_kit(peer: int, settings: config.Settings) -> tuple[Kit, int]:
    """A fresh region for the seeker, and its memfd. Raises MemoryCapReached, MemoryError or OSError."""
    turn = connector.descriptor_turn()
    size = connector.region_size(settings.window, settings.chunk_size)
    Memory.take(size)
    eventfds: list[int] = []
    try:
        for _ in range(2):
            eventfds.append(_new_eventfd())
        region_id = os.urandom(16)
        memfd, memory, size = connector.create_region(settings.window, settings.chunk_size, region_id)
    except BaseException:
        for fd in eventfds:
            os.close(fd)
        Memory.give_back(size)
        raise
    wake_fd, peer_fd = eventfds
    return Kit(memory, size, 0, wake_fd, peer_fd, region_id, peer, turn), memfd


def _new_eventfd() -> int:
    """An eventfd. Parked regions give way to it."""
    try:
        return connector.new_eventfd()
    except OSError:
        if not drop_parked():
            raise
    return connector.new_eventfd()


def arrived_kit(memory: int, size: int, wake_fd: int, peer_fd: int, region_id: bytes, reused: bool) -> Kit:
    """The region that a seeker sent to the publisher, as `connector.arrived` tells it. Raises MemoryCapReached."""
    kit = Kit(memory, size, 1, wake_fd, peer_fd, region_id, None, connector.descriptor_turn())
    try:
        Memory.take(0 if reused else size)  # one that was parked is counted already
    except MemoryCapReached:
        kit.unmap()
        raise
    return kit


# ---- parked by the seeker ----------------------------------------------------------------------------------

PARKED_PER_PEER = 8
"""Regions kept for the next connections to one process."""

PARKED = 64
"""And for all."""

parked: list[Kit] = []
"""The oldest first. Who takes one out of the list has it, whatever other threads do."""


def _take(kit: Kit) -> bool:
    try:
        parked.remove(kit)
    except ValueError:
        return False  # another thread has it
    return True


def park(kit: Kit) -> None:
    """Keeps a finished connection's region for the next one to the same process, in place of the oldest."""
    parked.append(kit)
    kept = [other for other in list(parked) if other.peer == kit.peer]
    for old in [*kept[:-PARKED_PER_PEER], *parked[:-PARKED]]:
        if _take(old):
            old.discard()


def parked_kit(peer: int, settings: config.Settings) -> Kit | None:
    """A region of an earlier connection to the same process, if both sides have finished with it and it has the
    geometry of the settings."""
    geometry = settings.window, connector.region_size(settings.window, settings.chunk_size)
    for kit in list(parked):
        if kit.peer == peer and (kit.window, kit.size) == geometry and _take(kit):
            if kit.is_lost():
                kit.discard()
            elif connector.recycle_region(kit.memory, kit.window):
                return kit
            else:
                parked.append(kit)  # for later
    return None


def drop_parked_by_seeker() -> bool:
    """Gives back what the seeker has parked. Whether there was anything."""
    kits = list(parked)
    for kit in kits:
        if _take(kit):
            kit.discard()
    return bool(kits)


def drop_parked() -> bool:
    """Gives back all parked regions with their descriptors. Whether there were any."""
    freed = connector.drop_parked()
    Memory.give_back(freed)
    return drop_parked_by_seeker() or freed > 0
