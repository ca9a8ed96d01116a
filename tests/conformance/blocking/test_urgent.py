"""Urgent data, MSG_OOB, before, while and after a connection moves."""

import contextlib
import select
import socket

import pytest
from harness.pairs import SECONDS, Pair, Task, listening, make_pair, path_of, read_exactly, socket_class

import fastsock

ROUNDS = 12
"""Enough for the kind that moves in the middle of them."""


def answer(pair: Pair) -> None:
    pair.far.sendall(b".")
    assert pair.near.recv(1) == b"."


def polled(sock: socket.socket, events: int = select.POLLIN) -> select.poll:
    poll = select.poll()
    poll.register(sock, events)
    return poll


def wait_for_urgent(sock: socket.socket) -> None:
    assert polled(sock, select.POLLPRI).poll(SECONDS * 1000)


@pytest.mark.parametrize("how", ["in line", "apart", "not read"])
def test_where_it_is_read(pair: Pair, how: str) -> None:
    """With SO_OOBINLINE no byte is lost or displaced, whichever path it takes. Without it the byte is read apart, and
    the stream goes on as if it had never been in it."""
    near, far = pair
    far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, how == "in line")
    for _ in range(ROUNDS):
        near.sendall(b"ab!", socket.MSG_OOB)
        near.sendall(b"cd")
        if how == "apart":
            wait_for_urgent(far)
            assert read_exactly(far, 2) == b"ab"
            assert far.recv(1, socket.MSG_OOB) == b"!"
            assert read_exactly(far, 2) == b"cd"
        else:
            expected = b"ab!cd" if how == "in line" else b"abcd"
            assert read_exactly(far, len(expected)) == expected
        assert far.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE) == (how == "in line")
        answer(pair)


@pytest.mark.parametrize("urgent", [1, 2])
@pytest.mark.parametrize("on_ring", [False, True], ids=["kernel", "ring"])
def test_readiness_of_a_number_that_is_handed_out_behind_an_urgent_byte(on_ring: bool, urgent: int) -> None:
    """Nothing was received before, and what the urgent bytes are counted by makes nothing readable."""
    settings = fastsock.configure(move_after=0, _meeting_ms=2000) if on_ring else contextlib.nullcontext()
    with settings, listening(on_ring) as listener, socket_class(on_ring)() as near:
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:
            sends = Task(lambda: near.sendall(b"ab"))
            far.sendall(b".")
            sends.result()
            assert near.recv(1) == b"."
            for _ in range(urgent):
                near.send(b"!", socket.MSG_OOB)
            near.sendall(b"cd")
            assert path_of(near) == path_of(far) == ("ring" if on_ring else "tcp")
            assert polled(far).poll(SECONDS * 1000)


def test_readiness_afterwards(pair: Pair) -> None:
    """An urgent byte in the kernel's queue does not hide ordinary data from a poller, nor stay behind as readable."""
    poll = polled(pair.far)
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


def test_a_poller_hears_of_data_behind_an_urgent_byte(pair: Pair) -> None:
    """The urgent byte, which is not read with the others, is not taken for the byte that tells of the data."""
    pair.far.setblocking(False)
    poll = polled(pair.far)
    for number in range(ROUNDS):
        pair.near.sendall(b"ab")
        pair.near.send(b"!", socket.MSG_OOB)
        wait_for_urgent(pair.far)
        pair.near.sendall(b"cd")
        assert poll.poll(SECONDS * 1000)
        assert pair.far.recv(100) == b"ab"
        assert poll.poll(SECONDS * 1000), number
        assert pair.far.recv(2) == b"cd"
        pair.near.sendall(b"ef")
        assert poll.poll(SECONDS * 1000), number
        assert pair.far.recv(100) == b"ef"
        pair.near.send(b"?", socket.MSG_OOB)
        wait_for_urgent(pair.far)
        pair.near.sendall(b"g")
        pair.near.sendall(b"h")
        got = b""
        while len(got) < 2:
            assert poll.poll(SECONDS * 1000), (number, got)
            got += pair.far.recv(1)
        assert got == b"gh"
        assert poll.poll(0) == []
        pair.far.setblocking(True)
        answer(pair)
        pair.far.setblocking(False)


@pytest.mark.parametrize("before", [b"", b"abc"])
def test_a_peek_sleeps_behind_an_urgent_byte(pair: Pair, before: bytes) -> None:
    # On the ring the byte has a descriptor of its own, which a peek passes by: else there would always be something.
    pair.near.sendall(before + b"!", socket.MSG_OOB)
    assert pair.far.recv(len(before), socket.MSG_WAITALL) == before
    wait_for_urgent(pair.far)
    peeking = Task(pair.far.recv, 10, socket.MSG_PEEK)
    assert peeking.blocks()
    pair.near.sendall(b"de")
    assert peeking.result() in (b"d", b"de")
    assert pair.far.recv(1, socket.MSG_OOB) == b"!"
    assert pair.far.recv(2, socket.MSG_WAITALL) == b"de"


@pytest.mark.parametrize("sizes", [(3,), (2, 1)], ids=["at once", "in two"])  # (a third of the window is asked for)
@pytest.mark.parametrize("on_ring", [False, True], ids=["kernel", "ring"])
def test_who_only_looks_at_an_urgent_byte_keeps_no_sender(on_ring: bool, sizes: tuple[int, ...]) -> None:
    """The ring is full behind what the receiver reads, and the sender waits for POLLOUT, but for an urgent byte."""
    few = {"window": 4, "ack_threshold": 2}
    with fastsock.configure(**few), make_pair("ring" if on_ring else "kernel") as pair, select.epoll() as epoll:
        near, far = pair
        epoll.register(far.fileno(), select.EPOLLOUT)
        for sender, receiver in ((far, near), (near, far)):  # the answer brings all credits back
            sender.send(b"m")
            assert receiver.recv(10) == b"m"
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.setblocking(False)
        for flags in (0, 0, 0, socket.MSG_OOB):
            assert far.send(b"x", flags) == 1
        with contextlib.suppress(BlockingIOError):
            far.send(bytes(1000))
        for size in sizes:
            assert near.recv(size) == b"x" * size
        looking = Task(near.recv, 10, socket.MSG_PEEK)
        looking.join(0.1)
        assert epoll.poll(SECONDS)
        far.send(b"more")
        assert looking.result()
