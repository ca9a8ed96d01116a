"""The way out: a connection that moved and whose descriptor goes to somebody who reads the kernel's stream."""

import contextlib
import logging
import os
import re
import socket
import time
from pathlib import Path

import pytest
from harness.hostile_peer import events, runs
from harness.pairs import (
    KernelSocket,
    Pair,
    Task,
    fill,
    make_pair,
    path_of,
    pattern,
    payload,
    read_exactly,
    read_to_eof,
    taken_back,
    until,
)

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def kind() -> str:
    """Of `pair`."""
    return "ring"


@pytest.mark.parametrize(
    ("size", "read"),
    [*((size, 0) for size in (0, 1, 12, 48, 49, 5_000, 100_000, 700_000)), (20_000, 7_001), (400, 400), (400, 2)],
)
def test_a_descriptor_that_the_kernel_gets_back_is_read_and_written_raw(
    pair: Pair, size: int, read: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What lay unread is sent again."""
    near, far = pair
    data = payload(size)
    near.sendall(b"before")
    assert far.recv(100) == b"before"
    far.sendall(data)
    assert read_exactly(near, read) == data[:read]
    with taken_back(near) as raw:
        assert not events(caplog, "fastsock.bridge"), "the peer could take part"
        if size == read:
            with pytest.raises(BlockingIOError):
                raw.recv(1, socket.MSG_DONTWAIT)
        far.sendall(b"and on")
        assert read_exactly(raw, size - read + 6) == data[read:] + b"and on"
        raw.sendall(b"answer")
        assert read_exactly(far, 6) == b"answer"
        assert path_of(far) == "tcp"
        far.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    assert far.recv(1) == b""


def test_both_ends_leave_at_once() -> None:
    """One may have read up to the other's BACK before it leaves as well; neither waits for what the other has no reason
    to say. (A wait would be a second; so it is with STARTTLS.)"""
    took = []
    for _ in range(20):
        with make_pair("ring") as (near, far):
            far.sendall(b"go ahead")
            assert read_exactly(near, 8) == b"go ahead"
            leaving = Task(taken_back, near)
            far.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while path_of(far) == "ring" or far.recv(1):
                    far.recv(1, socket.MSG_PEEK)
            began = time.monotonic()
            with taken_back(far), leaving.result():
                took.append(time.monotonic() - began)
    assert sorted(took)[-3] < 0.5, took  # (the machine may stand still once or twice)


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastsock")


def test_a_half_closed_peer_gets_its_answer_over_a_bridge(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    near, far = pair
    far.sendall(payload(1_000))
    far.shutdown(socket.SHUT_WR)
    with taken_back(near) as raw:
        (told,) = events(caplog, "fastsock.bridge")
        bridge = int(re.search(r"process=(\d+)", told)[1])
        assert Path(f"/proc/{bridge}/stat").exists()
        assert read_to_eof(raw) == payload(1_000)
        raw.sendall(payload(100_000, 1))
        assert read_exactly(far, 100_000) == payload(100_000, 1)
    assert far.recv(1) == b""
    far.close()
    until(lambda: not runs(bridge), "the bridge's end")


@pytest.mark.parametrize("leaver", [0, 1], ids=["near", "far"])
@pytest.mark.parametrize("kind", ["kernel", "midstream"])
def test_an_end_shut_in_both_directions_loses_nothing(kind: str, leaver: int) -> None:
    """Its kernel has not sent all yet, and would drop the rest for any byte that comes: it answers with a reset."""
    with make_pair(kind) as made:
        near, far = made
        with KernelSocket(fileno=os.dup(near.fileno())) as filler:
            filled = fill(filler)  # no operations of near's, which would look for far meanwhile

        def moved() -> bool:
            far.sendall(b"move")
            assert read_exactly(near, 4) == b"move"
            return path_of(far) == ("tcp" if kind == "kernel" else "ring")

        until(moved, "the direction to near is on the ring")
        far.sendall(b"unread")
        near.shutdown(socket.SHUT_RDWR)
        ends: list[socket.socket] = list(made)
        with taken_back(ends[leaver]) as raw:
            ends[leaver] = raw
            assert read_to_eof(ends[1]) == pattern(filled)
            assert read_to_eof(ends[0]) == b"unread"
