"""Polling only where it can pay."""

import contextlib
import os

import pytest
from harness.pairs import listening, until
from harness.processes import running, settle

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")
CPUS = sorted(os.sched_getaffinity(0))
two_processors = pytest.mark.skipif(len(CPUS) < 2, reason="needs two processors")


ECHO = """
os.sched_setaffinity(0, {int(sys.argv[2])})
sock = connect(int(sys.argv[1]))
settle(sock, leads=False)
for _ in range(300):
    sock.sendall(sock.recv(1))
stats = fastsock.stats()
say(stats.polls_paid + stats.polls_unpaid)
told()
"""


def polls_of_pinned_ends(here: int, there: int) -> tuple[int, int]:
    """How often each end of a connection polls, when each may use one processor only, while they answer each other."""
    allowed = os.sched_getaffinity(0)
    with listening() as listener, fastsock.configure(move_after=0):
        try:
            os.sched_setaffinity(0, {here})
            with running(ECHO, listener.getsockname()[1], there) as program, listener.accept()[0] as sock:
                settle(sock)
                before = fastsock.stats()
                for _ in range(300):
                    sock.sendall(b"x")
                    assert sock.recv(1) == b"x"
                after = fastsock.stats()
                mine = after.polls_paid + after.polls_unpaid - before.polls_paid - before.polls_unpaid
                return mine, int(program.line())
        finally:
            os.sched_setaffinity(0, allowed)


@two_processors
def test_ends_with_a_processor_each_poll():
    # (Not while it does not pay. One of them may find its bytes there each time.)
    until(lambda: sum(polls_of_pinned_ends(CPUS[0], CPUS[1])) > 0, "who waits polls")


def test_ends_that_share_their_only_processor_do_not_poll():
    assert polls_of_pinned_ends(CPUS[0], CPUS[0]) == (0, 0)


BURNER = """
say("burns")
while True:
    pass
"""


ONE_SHOTS = """
listener = listening()

def serve():
    for _ in range(100):
        with listener.accept()[0] as sock:
            sock.sendall(sock.recv(100))

serving = threading.Thread(target=serve)
serving.start()
for _ in range(100):
    with connect(listener.getsockname()[1]) as sock:
        sock.sendall(b"x")
        assert sock.recv(100) == b"x"
serving.join()
stats = fastsock.stats()
say(f"{stats.polls_paid + stats.polls_unpaid} polls, {stats.poll_ns} ns")
"""


def test_on_the_kernel_path_nobody_polls_in_a_crowd():
    """A look there is a system call: with more to run than there are processors, it calls for ever and wins nothing."""
    with contextlib.ExitStack() as burners:
        for _ in range(2 * (os.cpu_count() or 1)):
            assert burners.enter_context(running(BURNER)).line() == "burns"
        with running(ONE_SHOTS, FASTSOCK_MOVE_AFTER="100") as program:
            assert program.line() == "0 polls, 0 ns"
