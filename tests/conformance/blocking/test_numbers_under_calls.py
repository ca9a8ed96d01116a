"""A call that is blocked when its socket's number is closed or replaced goes on with the connection that it has."""

import contextlib
import os
import socket
from collections.abc import Callable

import pytest
from harness.pairs import (
    KINDS,
    Pair,
    Task,
    listening,
    make_pair,
    payload,
    read_exactly,
    read_to_eof,
    reset,
    socket_class,
)

MUCH = 12_000_000
"""Bytes: more than a connection holds."""


def replace(pair: Pair, other: Pair) -> None:
    os.dup2(other.near.fileno(), pair.near.fileno())


def close_and_take(pair: Pair, other: Pair) -> None:
    number = pair.near.fileno()
    os.close(number)
    taken = os.dup(other.near.fileno())
    if taken != number:
        os.dup2(other.near.fileno(), number)
        os.close(taken)


HOW = pytest.mark.parametrize("how", [replace, close_and_take], ids=["dup2", "closed-and-taken"])


def means_the_other(pair: Pair, other: Pair) -> None:
    """The objects are what their numbers mean, and both ends of the other connection are whole."""
    pair.near.sendall(b"via")
    assert other.far.recv(10) == b"via"
    other.far.sendall(b"abcdef")
    assert (pair.near.recv(3), other.near.recv(3)) == (b"abc", b"def")


@HOW
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_blocked_receive_returns_what_its_peer_sends(kind: str, how: Callable[[Pair, Pair], None], size: int) -> None:
    with make_pair(kind) as pair, make_pair(kind) as other:
        receiving = Task(pair.near.recv, size).until_asleep()
        how(pair, other)
        other.far.sendall(b"of another connection")
        pair.far.sendall(b"old")
        assert receiving.result() == b"old"
        assert other.near.recv(100) == b"of another connection"
        assert pair.far.recv(1) == b""  # nobody has the connection any more
        means_the_other(pair, other)


def test_a_blocked_receive_outlives_its_number(kind: str) -> None:
    with make_pair(kind) as pair:
        receiving = Task(pair.near.recv, 10).until_asleep()
        os.close(pair.near.fileno())
        pair.far.sendall(b"old")
        assert receiving.result() == b"old"
        assert pair.far.recv(1) == b""
        with pytest.raises(OSError, match="Bad file descriptor"):
            pair.near.close()


def test_a_blocked_receive_keeps_none_of_the_program_s_numbers(kind: str) -> None:
    with make_pair(kind) as pair:
        receiving = Task(pair.near.recv, 10).until_asleep()
        free = os.open(os.devnull, os.O_RDONLY)  # the lowest
        os.close(free)
        pair.near.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(free)
        pair.far.sendall(b"old")
        assert receiving.result() == b"old"


@HOW
def test_a_blocked_send_goes_on_when_its_peer_reads(kind: str, how: Callable[[Pair, Pair], None]) -> None:
    data = payload(1 << 16) * (MUCH >> 16)
    with make_pair(kind) as pair, make_pair(kind) as other:
        sending = Task(pair.near.sendall, data).until_asleep()
        how(pair, other)
        means_the_other(pair, other)
        assert read_to_eof(pair.far) == data
        sending.result()


@HOW
def test_calls_of_two_threads_hear_of_their_peers_end(kind: str, how: Callable[[Pair, Pair], None]) -> None:
    """Both are told of the number: the first one that wakes does not keep it to itself."""
    with make_pair(kind) as pair, make_pair(kind) as other:
        sending = Task(pair.near.send, bytes(MUCH)).until_asleep()  # (sendall would go on with the number)
        receiving = Task(pair.near.recv, 10).until_asleep()
        how(pair, other)
        sending.until_asleep()
        receiving.until_asleep()
        reset(pair.far)
        for call in (sending, receiving):
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                assert call.result() != MUCH
        means_the_other(pair, other)


@HOW
def test_a_blocked_accept_takes_a_visitor_of_its_own_listener(kind: str, how: Callable[[Pair, Pair], None]) -> None:
    near_fastsock = KINDS[kind].near_fastsock
    with listening(near_fastsock) as listener, make_pair(kind) as other, socket_class(near_fastsock)() as visitor:
        address = listener.getsockname()
        accepting = Task(listener.accept).until_asleep()
        how(Pair(listener, visitor, kind), other)
        visitor.connect(address)
        accepted = accepting.result()[0]
        with accepted:
            accepted.sendall(b"welcome")
            assert read_exactly(visitor, 7) == b"welcome"
        means_the_other(Pair(listener, visitor, kind), other)


@HOW
def test_a_connect_under_way_does_not_touch_who_has_its_number(kind: str, how: Callable[[Pair, Pair], None]) -> None:
    of_fastsock = KINDS[kind].near_fastsock
    with listening(of_fastsock, 0) as listener, socket.socket() as first, socket_class(of_fastsock)() as near:
        first.connect(listener.getsockname())  # there is no room for another one
        connecting = Task(near.connect, listener.getsockname()).until_asleep()
        with make_pair(kind) as other:
            pair = Pair(near, first, kind)
            how(pair, other)
            listener.accept()[0].close()
            connecting.result()
            for _ in range(2 if KINDS[kind].moves else 1):
                means_the_other(pair, other)


def test_a_connect_whose_number_is_closed_says_nothing_of_it(kind: str) -> None:
    of_fastsock = KINDS[kind].near_fastsock
    with listening(of_fastsock, 0) as listener, socket.socket() as first, socket_class(of_fastsock)() as near:
        first.connect(listener.getsockname())
        connecting = Task(near.connect, listener.getsockname()).until_asleep()
        os.close(near.fileno())
        listener.accept()[0].close()
        assert connecting.result() is None
        with pytest.raises(OSError, match="Bad file descriptor"):
            near.close()
