"""Processes that share a connection sleep on one futex: a wakeup reaches the one it is for, and wakes once."""

import os
import time
from collections.abc import Callable

import pytest
from conformance.blocking.processes import Gate, forked
from harness.pairs import Pair, Task, fill, payload, read_exactly, sleep_of, taken_back, until

SIZE = 3_000_000
"""Bytes: more than a connection on the ring holds."""


pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def kind() -> str:
    """Of `pair`."""
    return "ring"


def sleeps_on(thread: int | None) -> bool:
    """Whether a thread sleeps for a while without waking. (A sleeper that is not alone looks less often than that.)"""
    before = sleep_of(thread or 0)
    time.sleep(0.03)
    return before is not None and sleep_of(thread or 0) == before


def wakes(act: Callable[[], object]) -> None:
    """A few wakeups, one after the other."""
    for _ in range(5):
        act()
        time.sleep(0.005)


@pytest.mark.parametrize("full", [False, True], ids=["room", "full"])
def test_a_receiver_sleeps_while_another_process_has_the_connection_too(pair: Pair, full: bool) -> None:
    near, far = pair
    if full:
        fill(near)
    with Gate() as over, forked(over.wait):
        receiver = Task(lambda: read_exactly(near, 5))
        wakes(lambda: far.send(b"x"))
        receiver.result()
        receiver = Task(near.recv, 1)
        until(lambda: sleeps_on(receiver.native_id), "the receiver sleeps")
        far.send(b"x")
        assert receiver.result() == b"x"
        over.open()


@pytest.mark.parametrize("unread", [0, 100])
def test_a_sender_sleeps_while_another_process_has_the_connection_too(pair: Pair, unread: int) -> None:
    near, far = pair
    far.sendall(payload(unread))
    with Gate() as over, forked(over.wait):
        sender = Task(near.sendall, payload(SIZE))
        wakes(lambda: far.recv(10_000))
        until(lambda: sleeps_on(sender.native_id), "the sender sleeps")
        Task(lambda: read_exactly(far, SIZE - 50_000)).result()
        sender.result()
        over.open()


def test_a_receiver_in_the_kernel_leaves_the_senders_wakeup_alone(pair: Pair) -> None:
    """The peer leaves while one thread sends and another receives. On one processor the receiver, which waits for the
    kernel by then, is the first to run."""
    near, far = pair
    data = payload(SIZE)
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        sender = Task(near.sendall, data).until_asleep()
        receiver = Task(near.recv, 1).until_asleep()
        with taken_back(far) as raw:
            assert read_exactly(raw, SIZE) == data
            raw.sendall(b"x")
            assert receiver.result() == b"x"
            sender.result()
    finally:
        os.sched_setaffinity(0, usable)
