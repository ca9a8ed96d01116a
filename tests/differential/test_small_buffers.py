"""Socket buffers that the program made small: who waits for room gets it with what was read, and not later."""

import socket

import pytest
from pairs import SECONDS, Pair, deadline, payload, read_exactly


@pytest.fixture(autouse=True)
def bounded():
    with deadline(60):
        yield


PIECE = 30000


@pytest.mark.parametrize("option", ["SO_SNDBUF", "SO_RCVBUF"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "in the middle"])
def test_a_sender_goes_on_when_everything_was_read(pair: Pair, option: str, late: bool) -> None:
    """Also if the reader makes no other call then: it has read what was there, and does something else."""
    near, far = pair
    small = near if option == "SO_SNDBUF" else far
    if not late:
        small.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 8192)
    for number in range(12):
        near.sendall(payload(PIECE, number))
        assert read_exactly(far, PIECE) == payload(PIECE, number)
    if late:
        small.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 8192)
    near.settimeout(SECONDS)
    for number in range(20):
        near.sendall(payload(PIECE, number))
        assert read_exactly(far, PIECE) == payload(PIECE, number)
    pair.check_path()
