"""Half-close: what SHUT_RD, SHUT_WR and SHUT_RDWR do to both ends, and to calls that are waiting."""

import errno
import select
import socket
from socket import SHUT_RD, SHUT_RDWR, SHUT_WR

import pytest
from harness.pairs import (
    SECONDS,
    Pair,
    Task,
    error_of,
    fill,
    make_pair,
    pattern,
    payload,
    raises_errno,
    read_exactly,
    read_to_eof,
    reset,
    until,
)

SENDS = {
    "send": lambda sock: sock.send(b"x"),
    "send nothing": lambda sock: sock.send(b""),
    "sendall": lambda sock: sock.sendall(b"x"),
    "sendmsg": lambda sock: sock.sendmsg([b"x"]),
    "sendto": lambda sock: sock.sendto(b"x", ("127.0.0.1", 9)),
}


def test_the_peer_reads_on_to_the_end(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"last words")
    near.shutdown(SHUT_WR)
    assert far.recv(4) == b"last"
    assert far.recv(100) == b" words"
    for _ in range(3):
        assert far.recv(100) == far.recvfrom(100)[0] == far.recvmsg(100)[0] == b""
        assert far.recv_into(bytearray(10)) == 0


def test_the_other_direction_stays_open(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"question")
    near.shutdown(SHUT_WR)
    assert read_to_eof(far) == b"question"
    answer = payload(3 << 20)
    writer = Task(far.sendall, answer)
    assert read_exactly(near, len(answer)) == answer
    writer.result()
    far.shutdown(SHUT_WR)
    assert near.recv(100) == far.recv(100) == b""


@pytest.mark.parametrize("how", [SHUT_WR, SHUT_RDWR])
@pytest.mark.parametrize("name", SENDS)
def test_nothing_can_be_sent_afterwards(pair: Pair, name: str, how: int) -> None:
    near, far = pair
    near.shutdown(how)
    for _ in range(2):
        with raises_errno(errno.EPIPE):
            SENDS[name](near)
    assert far.recv(100) == b""


@pytest.mark.parametrize("how", [SHUT_WR, SHUT_RDWR])
def test_it_succeeds_however_fast_the_peer_answers_with_a_reset(kind: str, how: int) -> None:
    for _ in range(60):
        with make_pair(kind) as (near, far):

            def answer(far: socket.socket = far) -> bytes:
                said = far.recv(1)
                reset(far)
                return said

            peer = Task(answer)
            assert peer.blocks()
            near.shutdown(how)
            assert peer.result() == b""
            with raises_errno(errno.ENOTCONN):  # the reset has come
                near.shutdown(how)


def test_a_full_connection_is_delivered_before_the_end(pair: Pair) -> None:
    near, far = pair
    sent = fill(near)
    near.shutdown(SHUT_WR)
    assert read_to_eof(far) == pattern(sent)


def test_unread_bytes_survive_the_own_shutdown(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"for you")
    near.shutdown(SHUT_WR)
    assert far.recv(1) == b""
    assert near.recv(100) == b"for you"


def test_a_stopped_reader_reads_what_is_there_and_what_still_comes(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"there already")
    until(lambda: near.recv(100, socket.MSG_PEEK) == b"there already", "the bytes are there")
    near.shutdown(SHUT_RD)
    assert near.recv(5) == b"there"
    assert near.recv(100) == b" already"
    assert near.recv(100) == near.recv(100) == b""
    far.sendall(b"still coming")
    assert until(lambda: near.recv(100), "the bytes that came later") == b"still coming"
    assert near.recv(100) == b""


def test_a_stopped_reader_goes_on_sending(pair: Pair) -> None:
    near, far = pair
    near.shutdown(SHUT_RD)
    near.sendall(b"hello")
    assert far.recv(100) == b"hello"
    assert not select.select([far], [], [], 0)[0], "SHUT_RD is not told to the peer"
    near.shutdown(SHUT_RD)


def test_an_end_that_half_closed_and_has_read_everything_is_not_readable(pair: Pair) -> None:
    near, far = pair
    near.shutdown(SHUT_WR)
    assert far.recv(1) == b""
    far.sendall(b"hello")
    assert near.recv(100) == b"hello"
    assert not select.select([near], [], [], 0)[0]
    far.sendall(b"more")
    assert select.select([near], [], [], SECONDS)[0]
    assert near.recv(100) == b"more"
    assert not select.select([near], [], [], 0)[0]


def test_sending_to_a_peer_that_shut_both(pair: Pair) -> None:
    near, far = pair
    far.shutdown(SHUT_RDWR)
    assert near.recv(100) == b""
    assert near.send(b"the first one is taken") == 22
    until(lambda: error_of(lambda sock: sock.send(b"x"), near)[0] is BrokenPipeError, "the reset arrived")
    with raises_errno(errno.EPIPE):
        near.send(b"x")
    assert near.recv(100) == b""
    with raises_errno(errno.ECONNRESET):
        far.recv(100)
    assert far.recv(100) == b""


def test_shutting_twice(pair: Pair) -> None:
    near, far = pair
    near.shutdown(SHUT_WR)
    near.shutdown(SHUT_WR)
    far.shutdown(SHUT_WR)
    assert near.recv(1) == far.recv(1) == b""
    for how in (SHUT_RD, SHUT_WR, SHUT_RDWR):
        with raises_errno(errno.ENOTCONN):
            near.shutdown(how)
        with raises_errno(errno.ENOTCONN):
            far.shutdown(how)


def test_shutdown_of_a_reset_connection(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"never read")
    far.close()
    with raises_errno(errno.ECONNRESET):
        near.recv(1)
    with raises_errno(errno.ENOTCONN):
        near.shutdown(SHUT_RDWR)
