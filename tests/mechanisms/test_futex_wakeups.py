"""Threads that sleep on the ring: what it costs to sleep and to wake, and that they hear of everything else too."""

from __future__ import annotations

import os
import socket as stdlib
from pathlib import Path

import pytest
from conformance.blocking.processes import forked
from harness.counting import traced
from harness.pairs import Pair, Task

PROGRAM = """
import os, time
import fastsock
fastsock.patch()
more = 20  # round trips, once one direction is on the ring
import socket
rounds = 300
told = os.pipe()
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    listener.close()
    here = socket.create_connection(("127.0.0.1", int(os.read(told[0], 100))))
    while (first := here.recv(4)) == b"more":
        here.sendall(b"pong")
    assert first == b"last"
    for _ in range(rounds):
        assert (got := here.recv(4)) == b"ping", got
        here.sendall(b"pong")
    assert here.recv(4) == b""
    os._exit(0)
os.write(told[1], str(listener.getsockname()[1]).encode())
here, _ = listener.accept()
def go(count):
    for _ in range(count):
        here.sendall(b"ping")
        assert (got := here.recv(4)) == b"pong", got
until = time.monotonic() + 20
while fastsock.path_of(here).path != "ring" or (more := more - 1):
    assert time.monotonic() < until, fastsock.path_of(here)
    here.sendall(b"more")
    assert here.recv(4) == b"pong"
here.sendall(b"last")
os.write(2, b"BEGIN")
go(rounds)
os.write(2, b"END")
print(os.getpid())
here.close()
os.wait()
"""
ROUNDS = 300


def test_a_round_trip_is_one_call_to_wake_and_one_to_sleep(tmp_path: Path) -> None:
    """Polling is off, and both ends block: no eventfd."""
    calls = "futex,nanosleep,clock_nanosleep,sched_yield,%desc,sendto,recvfrom,sendmsg,recvmsg,setsockopt"
    process, (lines,) = traced(PROGRAM, calls, tmp_path, FASTSOCK_POLL_US="0", FASTSOCK_MOVE_AFTER="1")
    made = [line for line in lines if line.split()[0] == process.strip() and " resumed>" not in line]
    wakes, sleeps = (sum(f"FUTEX_{what}," in line for line in made) for what in ("WAKE", "WAIT"))
    # (One that is awake when something comes needs neither.)
    assert wakes <= ROUNDS * 1.05
    assert sleeps <= ROUNDS * 1.05
    assert wakes + sleeps > ROUNDS / 4
    others = [line for line in made if "futex(" not in line]
    looks = [line for line in others if "MSG_PEEK" in line or "unfinished" in line]  # who has not slept
    assert len(looks) <= 1.05 * ROUNDS, others
    assert len(others) - len(looks) <= ROUNDS / 20, others


pytestmark = pytest.mark.usefixtures("bounded")


def test_one_that_runs_out_of_time_leaves_the_others_asleep(pair: Pair) -> None:
    near, far = pair
    patient = Task(near.recv, 1).until_asleep()
    near.settimeout(0.05)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            near.recv(1)
    patient.until_asleep()
    far.sendall(b"x")
    assert patient.result() == b"x"


def test_threads_that_sleep_hear_of_a_shutdown_by_another_one(pair: Pair) -> None:
    near, _ = pair
    receiver = Task(near.recv, 1).until_asleep()
    near.shutdown(stdlib.SHUT_RD)
    assert receiver.result() == b""


@pytest.mark.parametrize("what", ["bytes", "end", "reset"])
def test_threads_sleep_on_without_our_descriptors(pair: Pair, what: str) -> None:
    """The program closes all that it does not know, the connection thread's among them."""

    def child() -> None:
        keep = max(near.fileno(), far.fileno(), asked.fileno(), told.fileno())
        far.close()
        receiver = Task(near.recv, 1).until_asleep()
        os.closerange(keep + 1, 1 << 16)
        told.send(b"!")
        assert receiver.result() == (b"x" if what == "bytes" else b"")
        told.send(b"!")

    near, far = pair
    asked, told = stdlib.socketpair()
    asked.settimeout(20)
    with asked, told, forked(child):
        near.close()
        assert asked.recv(1) == b"!"
        if what == "bytes":
            far.sendall(b"x")
        elif what == "end":
            far.shutdown(stdlib.SHUT_WR)
        else:
            far.close()
        assert asked.recv(1) == b"!"
