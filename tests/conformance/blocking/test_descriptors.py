"""Several descriptors for one connection: dup, fromfd, detach and adoption share one stream."""

import errno
import os
import resource
import socket

import pytest
from harness.pairs import Pair, Task, make_pair, payload, poll_mask, raises_errno, read_exactly, until


def fromfd(sock: socket.socket) -> socket.socket:
    """What ``socket.fromfd`` does, for the class of ``sock``."""
    return type(sock)(sock.family, sock.type, sock.proto, fileno=socket.dup(sock.fileno()))


COPIES = {"dup": lambda sock: sock.dup(), "fromfd": fromfd}


@pytest.fixture(params=COPIES)
def copy(request: pytest.FixtureRequest):
    """A way to get a second socket for a connection."""
    return COPIES[request.param]


def test_a_copy_sends_into_the_same_stream(pair: Pair, copy) -> None:
    near, far = pair
    with copy(near) as second:
        for number in range(50):
            near.sendall(b"near %d," % number)
            second.sendall(b"copy %d," % number)
        expected = b"".join(b"near %d,copy %d," % (number, number) for number in range(50))
        assert read_exactly(far, len(expected)) == expected


def test_a_copy_receives_from_the_same_stream(pair: Pair, copy) -> None:
    near, far = pair
    with copy(near) as second:
        data = payload(300_000)
        writer = Task(far.sendall, data)
        received = b""
        while len(received) < len(data):
            received += near.recv(1000) if len(received) % 2 else second.recv(1777)
        writer.result()
        assert received == data


def test_the_stream_ends_with_the_last_copy(pair: Pair, copy) -> None:
    near, far = pair
    with copy(near) as second:
        near.close()
        second.sendall(b"still here")
        assert far.recv(100) == b"still here"
        with raises_errno(errno.EAGAIN):
            far.recv(100, socket.MSG_DONTWAIT)
        far.sendall(b"good")
        assert second.recv(100) == b"good"
    assert far.recv(100) == b""


def test_shutdown_through_a_copy_ends_the_stream(pair: Pair, copy) -> None:
    near, far = pair
    with copy(near) as second:
        second.shutdown(socket.SHUT_WR)
        assert far.recv(100) == b""
        with raises_errno(errno.EPIPE):
            near.send(b"x")


def test_a_copy_is_of_the_same_class_with_a_descriptor_of_its_own(pair: Pair, copy) -> None:
    near, _ = pair
    with copy(near) as second:
        assert type(second) is type(near)
        assert second.fileno() != near.fileno()
        assert (second.family, second.type, second.proto) == (near.family, near.type, near.proto)
        assert (second.getsockname(), second.getpeername()) == (near.getsockname(), near.getpeername())
        assert not second.get_inheritable()
        assert os.path.sameopenfile(near.fileno(), second.fileno())


def test_a_detached_connection_is_adopted_whole(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"before;")
    assert near.recv(3) == b"bef"
    near.sendall(b"sent before;")
    number = near.fileno()
    assert near.detach() == number
    assert near.fileno() == -1
    with raises_errno(errno.EBADF):
        near.send(b"x")
    far.sendall(b"between;")
    with type(near)(fileno=number) as adopted:
        assert adopted.fileno() == number
        assert (adopted.family, adopted.type) == (socket.AF_INET, socket.SOCK_STREAM)
        adopted.sendall(b"sent after;")
        far.sendall(b"after;")
        assert read_exactly(adopted, 18) == b"ore;between;after;"
        assert read_exactly(far, 23) == b"sent before;sent after;"
    assert far.recv(100) == b""


def test_a_reused_descriptor_number_belongs_to_the_new_connection(kind: str) -> None:
    numbers = set()
    for attempt in range(10):
        with make_pair(kind) as pair:
            numbers.add(pair.near.fileno())
            for sender, receiver in (tuple(pair), tuple(pair)[::-1]):
                sender.sendall(b"connection %d" % attempt)
                assert receiver.recv(100) == b"connection %d" % attempt
                sender.sendall(b"left unread")
    assert len(numbers) < 10


def test_a_dup_is_ready_when_the_original_is(pair: Pair, copy) -> None:
    near, far = pair
    with copy(near) as second:
        far.sendall(b"x")
        until(lambda: poll_mask(second) == poll_mask(near), "both are ready")
        assert near.recv(1) == b"x"
        assert poll_mask(second) == poll_mask(near)


def test_a_dup2_that_fails_leaves_the_connection_as_it_is(pair: Pair) -> None:
    near, far = pair
    closed = os.dup(near.fileno())
    os.close(closed)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in (closed, -1):
        with raises_errno(errno.EBADF):
            os.dup2(number, near.fileno())
    with open(os.devnull) as another:
        resource.setrlimit(resource.RLIMIT_NOFILE, (near.fileno(), limits[1]))
        try:
            with raises_errno(errno.EBADF):
                os.dup2(another.fileno(), near.fileno())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for one, other in ((near, far), (far, near)):
        one.sendall(b"still there")
        assert read_exactly(other, 11) == b"still there"
