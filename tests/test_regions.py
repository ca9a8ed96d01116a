"""What a region holds is given back once, also where another thread or a forked child is at it."""

import os

import pytest
from hostile import drop_parked

from fastsock import config, regions
from fastsock._native import connector

pytestmark = pytest.mark.usefixtures("bounded")
PEER = 4_000_000
"""A process id that no process has."""


def kit() -> regions.Kit:
    made, memfd = regions.new_kit(PEER, config.active())
    os.close(memfd)
    return made


@pytest.fixture
def unmapped(monkeypatch):
    """How often each region was unmapped."""
    counts: dict[int, int] = {}
    unmap = connector.unmap_region

    def count(memory, size):
        counts[memory] = counts.get(memory, 0) + 1
        unmap(memory, size)

    monkeypatch.setattr(regions.connector, "unmap_region", count)
    return counts


@pytest.mark.parametrize("closed", [1, 2])
def test_a_child_forked_while_a_region_is_given_back_gives_back_the_rest(closed, monkeypatch, unmapped):
    """The thread that was at it is not in the child, which ends the search that has the region. What had been given
    back may be a stranger's by now."""
    drop_parked()
    before = regions.Memory.used
    given = kit()
    unmapped.clear()
    memory, numbers, strangers = given.memory, (given.wake_fd, given.peer_fd), []
    close = regions.connector.close_eventfd

    def close_and_fork(number):
        close(number)
        strangers.append(os.dup2(0, number))
        if len(strangers) == closed:
            given.discard()  # as the child does

    monkeypatch.setattr(regions.connector, "close_eventfd", close_and_fork)
    given.discard()
    monkeypatch.undo()
    assert (unmapped, strangers, regions.Memory.used) == ({memory: 1}, list(numbers), before)
    for number in strangers:
        os.close(number)  # it is open


def test_a_region_is_taken_by_one_thread(monkeypatch):
    """Another one drops what is parked while this one looks whether the peer has finished with it."""
    drop_parked()
    before = regions.Memory.used
    regions.park(kit())
    look = connector.recycle_region

    def drop_and_look(memory, window):
        regions.drop_parked_by_seeker()
        return look(memory, window)

    monkeypatch.setattr(regions.connector, "recycle_region", drop_and_look)
    regions.parked_kit(PEER, config.active())
    monkeypatch.undo()
    drop_parked()
    assert regions.Memory.used == before


def test_the_oldest_regions_go_first():
    drop_parked()
    kits = [kit() for _ in range(regions.PARKED_PER_PEER + 2)]
    for made in kits:
        regions.park(made)
    assert regions.parked == kits[2:]
    drop_parked()
    for made in kits:
        assert made.memory == 0
