"""Urgent data, MSG_OOB, before, while and after a connection moves."""

import select
import socket

import pytest
from pairs import SECONDS, Pair, deadline, read_exactly


@pytest.fixture(autouse=True)
def bounded():
    with deadline(40):
        yield


ROUNDS = 12
"""Enough for the kind that moves in the middle of them."""


def answer(pair: Pair) -> None:
    pair.far.sendall(b".")
    assert pair.near.recv(1) == b"."


def wait_for_urgent(sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLPRI)
    assert poll.poll(SECONDS * 1000)


def test_in_line(pair: Pair) -> None:
    """With SO_OOBINLINE no byte is lost or displaced, whichever path it takes."""
    pair.far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    for _ in range(ROUNDS):
        pair.near.sendall(b"ab!", socket.MSG_OOB)
        pair.near.sendall(b"cd")
        assert read_exactly(pair.far, 5) == b"ab!cd"
        assert pair.far.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE) == 1
        answer(pair)


def test_out_of_line(pair: Pair) -> None:
    """Without it the byte is read apart, and the stream goes on as if it had never been in it."""
    for _ in range(ROUNDS):
        pair.near.sendall(b"ab!", socket.MSG_OOB)
        pair.near.sendall(b"cd")
        wait_for_urgent(pair.far)
        assert read_exactly(pair.far, 2) == b"ab"
        assert pair.far.recv(1, socket.MSG_OOB) == b"!"
        assert read_exactly(pair.far, 2) == b"cd"
        answer(pair)


def test_out_of_line_and_not_read(pair: Pair) -> None:
    for _ in range(ROUNDS):
        pair.near.sendall(b"ab!", socket.MSG_OOB)
        pair.near.sendall(b"cd")
        assert read_exactly(pair.far, 4) == b"abcd"
        answer(pair)


def test_readiness_afterwards(pair: Pair) -> None:
    """An urgent byte in the kernel's queue does not hide ordinary data from a poller, nor stay behind as readable."""
    poll = select.poll()
    poll.register(pair.far, select.POLLIN)
    for _ in range(ROUNDS):
        pair.near.sendall(b"ab!", socket.MSG_OOB)
        assert read_exactly(pair.far, 2) == b"ab"
        wait_for_urgent(pair.far)
        assert pair.far.recv(1, socket.MSG_OOB) == b"!"
        for _ in range(3):
            pair.near.sendall(b"cd")
            assert poll.poll(SECONDS * 1000)
            assert read_exactly(pair.far, 2) == b"cd"
            assert poll.poll(0) == []
        answer(pair)
