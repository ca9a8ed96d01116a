"""The way out: a connection that moved and whose descriptor goes to somebody who reads the kernel's stream."""

import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile import events
from pairs import KernelSocket, Pair, Task, fill, make_pair, path_of, pattern, payload, read_exactly, read_to_eof, until

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def kind() -> str:
    """Of `pair`."""
    return "ring"


def test_a_detached_descriptor_is_read_and_written_raw(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"before")
    assert far.recv(100) == b"before"
    raw = KernelSocket(fileno=near.detach())
    with raw:
        far.sendall(b"to the raw one")
        assert read_exactly(raw, 14) == b"to the raw one"
        raw.sendall(b"from the raw one")
        assert read_exactly(far, 16) == b"from the raw one"
        assert fastsock.path_of(far).path == "tcp"
        far.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    assert far.recv(1) == b""


def test_both_ends_detached(pair: Pair) -> None:
    near, far = pair
    for _ in range(100):
        near.sendall(b"x" * 100)
        assert read_exactly(far, 100) == b"x" * 100
    raw_near, raw_far = (KernelSocket(fileno=sock.detach()) for sock in pair)
    with raw_near, raw_far:
        raw_near.sendall(b"hello")
        assert read_exactly(raw_far, 5) == b"hello"
        raw_far.sendall(b"world")
        assert read_exactly(raw_near, 5) == b"world"


def test_both_ends_leave_at_once() -> None:
    """One may have read up to the other's BACK before it leaves as well; neither waits for what the other has no reason
    to say. (A wait would be a second; so it is with STARTTLS.)"""
    took = []
    for _ in range(20):
        with make_pair("ring") as (near, far):
            far.sendall(b"go ahead")
            assert read_exactly(near, 8) == b"go ahead"
            leaving = Task(near.detach)
            far.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while path_of(far) == "ring" or far.recv(1):
                    far.recv(1, socket.MSG_PEEK)
            began = time.monotonic()
            with KernelSocket(fileno=far.detach()), KernelSocket(fileno=leaving.result()):
                took.append(time.monotonic() - began)
    assert sorted(took)[-3] < 0.5, took  # (the machine may stand still once or twice)


def test_a_peer_asleep_in_recv_follows(pair: Pair) -> None:
    near, far = pair
    waiting = Task(far.recv, 100).until_asleep()
    with KernelSocket(fileno=near.detach()) as raw:
        raw.sendall(b"after")
        assert waiting.result() == b"after"
        again = Task(far.recv, 100).until_asleep()
        raw.sendall(b"again")
        assert again.result() == b"again"


def test_exposed_descriptors_keep_no_doorbell_bytes(pair: Pair) -> None:
    near, far = pair
    near.fileno()
    far.fileno()
    for _ in range(50):
        far.sendall(b"ring")
        far.sendall(b"ring")
        assert read_exactly(near, 8) == b"ringring"
    with KernelSocket(fileno=near.detach()) as raw:
        raw.setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.recv(1)
        raw.setblocking(True)
        far.sendall(b"real")
        assert read_exactly(raw, 4) == b"real"


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastsock")


def running(process: int) -> bool:
    """Whether a process runs that is not ours to wait for. (A zombie has ended.)"""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("size", [1, 12, 48, 49, 5_000, 100_000, 700_000])
def test_unread_bytes_are_sent_again(pair: Pair, size: int, caplog: pytest.LogCaptureFixture) -> None:
    near, far = pair
    data = payload(size)
    far.sendall(data)
    with KernelSocket(fileno=near.detach()) as raw:
        assert not events(caplog, "fastsock.bridge"), "the peer could take part"
        far.sendall(b"and on")
        assert read_exactly(raw, size + 6) == data + b"and on"
        raw.sendall(b"answer")
        assert read_exactly(far, 6) == b"answer"
        assert path_of(far) == "tcp"


def test_a_descriptor_read_in_part(pair: Pair) -> None:
    near, far = pair
    far.sendall(payload(20_000))
    assert read_exactly(near, 7_001) == payload(20_000)[:7_001]
    with KernelSocket(fileno=near.detach()) as raw:
        far.sendall(b"!")
        assert read_exactly(raw, 13_000) == payload(20_000)[7_001:] + b"!"


def test_unread_bytes_behind_doorbell_bytes(pair: Pair) -> None:
    near, far = pair
    near.fileno()
    for _ in range(5):
        far.sendall(b"ring")
    assert near.recv(2) == b"ri"
    with KernelSocket(fileno=near.detach()) as raw:
        far.sendall(b"!")
        assert read_exactly(raw, 19) == b"ng" + b"ring" * 4 + b"!"


def test_a_closed_peer_s_bytes_cross_a_bridge(pair: Pair) -> None:
    near, far = pair
    far.sendall(payload(300_000))
    far.close()
    with KernelSocket(fileno=near.detach()) as raw:
        assert read_to_eof(raw) == payload(300_000)
        assert raw.recv(1) == b""


def test_a_half_closed_peer_gets_its_answer_over_a_bridge(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    near, far = pair
    far.sendall(payload(1_000))
    far.shutdown(socket.SHUT_WR)
    with KernelSocket(fileno=near.detach()) as raw:
        (told,) = events(caplog, "fastsock.bridge")
        bridge = int(re.search(r"process=(\d+)", told)[1])
        assert Path(f"/proc/{bridge}/stat").exists()
        assert read_to_eof(raw) == payload(1_000)
        raw.sendall(payload(100_000, 1))
        assert read_exactly(far, 100_000) == payload(100_000, 1)
    assert far.recv(1) == b""
    far.close()
    until(lambda: not running(bridge), "the bridge's end")


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
        with KernelSocket(fileno=ends[leaver].detach()) as raw:
            ends[leaver] = raw
            assert read_to_eof(ends[1]) == pattern(filled)
            assert read_to_eof(ends[0]) == b"unread"


def test_a_subprocess_reads_the_stream(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"a line before\n")
    assert far.recv(100) == b"a line before\n"
    fd = near.detach()
    child = subprocess.Popen(
        [sys.executable, "-c", "import os; os.write(1, os.read(0, 100).upper())"], stdin=fd, stdout=fd
    )
    os.close(fd)
    far.sendall(b"to the child")
    assert read_to_eof(far) == b"TO THE CHILD"
    assert child.wait(10) == 0
