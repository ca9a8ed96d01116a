"""A socket object is its descriptor's number, as on TCP: what happens to a number behind the object's back."""

import contextlib
import errno
import os
import socket

import pytest
from harness.pairs import Task, make_pair, payload, raises_errno, read_exactly

CLOSE = {"os.close": os.close, "socket.close": socket.close, "os.closerange": lambda fd: os.closerange(fd, fd + 1)}


def test_a_replaced_number_is_the_other_connection(kind: str) -> None:
    with make_pair(kind) as (near, far), make_pair(kind) as (near2, far2):
        os.dup2(near2.fileno(), near.fileno())
        near.sendall(b"via")
        assert far2.recv(10) == b"via"
        far2.sendall(b"abcdef")
        assert (near.recv(3), near2.recv(3)) == (b"abc", b"def")
        assert far.recv(1) == b""
        data = payload(100_000)
        near.sendall(data[:5000])
        assert read_exactly(far2, 5000) == data[:5000]
        near.close()
        near2.sendall(b"still there")
        assert far2.recv(100) == b"still there"
        near2.close()
        assert far2.recv(1) == b""


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("how", CLOSE)
def test_a_number_that_was_closed_and_taken_again(kind: str, how: str, size: int) -> None:
    with make_pair(kind) as (near, far):
        number = near.fileno()
        CLOSE[how](number)
        with make_pair(kind) as (near2, far2):
            taken, other = (far2, near2) if far2.fileno() == number else (near2, far2)
            if taken.fileno() != number:
                os.dup2(taken.fileno(), number)  # as if it had got the number, which somebody else took meanwhile
            data = payload(size)
            near.sendall(data)
            assert read_exactly(other, size) == data
            other.sendall(b"back")
            assert near.recv(10) == b"back"
            if near.detach() != taken.fileno():
                os.close(number)
        assert far.recv(1) == b""


@pytest.mark.parametrize("how", CLOSE)
def test_a_number_that_was_closed_means_nothing(kind: str, how: str) -> None:
    with make_pair(kind) as (near, far):
        CLOSE[how](near.fileno())
        for call in (lambda: near.send(b"x"), lambda: near.recv(1), lambda: near.sendall(b"x" * 100_000)):
            with raises_errno(errno.EBADF):
                call()
        assert far.recv(1) == b""
        with raises_errno(errno.EBADF):
            near.close()


def test_a_number_that_became_a_file(kind: str) -> None:
    with make_pair(kind) as (near, far):
        entry, exit_ = socket.socketpair()
        os.dup2(entry.fileno(), near.fileno())
        near.sendall(b"to the file")
        assert exit_.recv(100) == b"to the file"
        assert far.recv(1) == b""
        entry.close()
        exit_.close()


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR])
def test_what_is_set_and_shut_by_a_replaced_number_is_the_other_connection(kind: str, how: int) -> None:
    """Although a call of another thread is still inside the old one."""
    with make_pair(kind) as (near, far), make_pair(kind) as (near2, far2):
        near.settimeout(1)
        inside = Task(near.recv, 10).until_asleep()
        os.dup2(near2.fileno(), near.fileno())
        near.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
        for option in (socket.SO_OOBINLINE, socket.SO_RCVBUF):
            assert near.getsockopt(socket.SOL_SOCKET, option) == near2.getsockopt(socket.SOL_SOCKET, option)
        assert near2.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE) == 1
        assert near2.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000
        near.sendall(b"via")
        assert far2.recv(10) == b"via"
        near.shutdown(how)
        if how != socket.SHUT_RD:
            assert far2.recv(1) == b""
        if how != socket.SHUT_WR:
            assert near2.recv(1) == b""
        with contextlib.suppress(OSError):  # (what becomes of that call is not what is looked at here)
            far.sendall(b"the end of it")
            inside.result()
