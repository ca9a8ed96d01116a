"""Polling only where it can pay."""

import os

import pytest
from pairs import until
from processes import running, settle

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
    with fastsock.socket() as listener, fastsock.configure(move_after=0):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
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
    until(lambda: min(polls_of_pinned_ends(CPUS[0], CPUS[1])) > 0, "each end polls")  # (not while it does not pay)


def test_ends_that_share_their_only_processor_do_not_poll():
    assert polls_of_pinned_ends(CPUS[0], CPUS[0]) == (0, 0)
