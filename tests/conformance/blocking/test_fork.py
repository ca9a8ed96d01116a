"""A connection inherited through fork: both processes use the one stream, and the last holder ends it."""

import errno
import os
import select
import signal
import socket
from collections.abc import Callable

from harness.pairs import SECONDS, Pair, payload, poll_mask, raises_errno, read_exactly, read_to_eof

from conformance.blocking.processes import Gate, forked


def without(sock: socket.socket, function: Callable[..., object], *args: object) -> Callable[[], None]:
    """A function for the child: closes its copy of ``sock``, then calls ``function``."""

    def run() -> None:
        sock.close()
        function(*args)

    return run


def echo(sock: socket.socket) -> None:
    while chunk := sock.recv(100_000):
        sock.sendall(chunk)


def test_the_child_uses_what_the_parent_closes(pair: Pair) -> None:
    near, far = pair
    with forked(without(far, echo, near)):
        near.close()
        for number in range(100):
            far.sendall(b"message %d" % number)
            assert read_exactly(far, len(b"message %d" % number)) == b"message %d" % number
        far.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""


def test_a_number_becomes_readable_that_is_handed_out_when_a_child_of_the_peer_has_ended(pair: Pair) -> None:
    """On the ring the peer is asked for that. The child was, as its parent may have let go of the connection."""
    near, far = pair

    def send() -> None:
        near.sendall(b"child")
        near.close()

    with forked(without(far, send)):
        assert read_exactly(far, 5) == b"child"
    near.sendall(b"parent")
    poll = select.poll()
    poll.register(far, select.POLLIN)
    assert poll.poll(SECONDS * 1000)
    assert read_exactly(far, 6) == b"parent"


def test_the_child_gets_what_was_under_way_at_the_fork(pair: Pair) -> None:
    near, far = pair
    data = payload(100_000)
    far.sendall(data)
    assert read_exactly(near, 10) == data[:10]

    def check() -> None:
        assert read_exactly(near, len(data) - 10) == data[10:]
        near.sendall(b"whole")

    with forked(without(far, check)):
        near.close()
        assert read_to_eof(far) == b"whole"


def test_both_go_on_sending(pair: Pair) -> None:
    near, far = pair
    with Gate() as turn, Gate() as back:

        def send() -> None:
            for number in range(20):
                turn.wait()
                near.sendall(b"child %d;" % number)
                back.open()

        with forked(without(far, send)):
            for number in range(20):
                near.sendall(b"parent %d;" % number)
                turn.open()
                back.wait()
        expected = b"".join(b"parent %d;child %d;" % (number, number) for number in range(20))
        assert read_exactly(far, len(expected)) == expected


def test_both_go_on_receiving(pair: Pair) -> None:
    near, far = pair
    data = payload(4000)
    with Gate() as turn, Gate() as back:

        def receive() -> None:
            for number in range(20):
                turn.wait()
                assert read_exactly(near, 100) == data[number * 200 + 100 : number * 200 + 200]
                back.open()

        with forked(without(far, receive)):
            far.sendall(data)
            for number in range(20):
                assert read_exactly(near, 100) == data[number * 200 : number * 200 + 100]
                turn.open()
                back.wait()
    assert not poll_mask(near) & select.POLLIN, "what the child received is gone for the parent too"


def test_the_stream_ends_with_the_last_holder(pair: Pair) -> None:
    near, far = pair
    with Gate() as gate, forked(without(far, gate.wait)):
        near.sendall(b"last words")
        near.close()
        assert far.recv(100) == b"last words"
        poll = select.poll()
        poll.register(far, select.POLLIN)
        assert poll.poll(50) == [], "the child still holds the connection"
        gate.open()
        assert far.recv(100) == b""


def test_a_child_that_closes_with_bytes_unread_resets_nothing(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"unread")
    with forked(without(far, near.close)):
        pass
    assert near.recv(100) == b"unread"
    near.sendall(b"unharmed")
    assert far.recv(100) == b"unharmed"


def test_a_child_that_half_closes_does_so_for_all(pair: Pair) -> None:
    near, far = pair
    with forked(without(far, near.shutdown, socket.SHUT_WR)):
        assert far.recv(100) == b""
    with raises_errno(errno.EPIPE):
        near.send(b"x")
    far.sendall(b"other way")
    assert near.recv(100) == b"other way"


def test_a_killed_child_takes_nothing_with_it(pair: Pair) -> None:
    near, far = pair
    with Gate() as started:

        def hold() -> None:
            near.sendall(b"from the child;")
            started.open()
            signal.pause()

        with forked(without(far, hold)) as child:
            started.wait()
            os.kill(child, signal.SIGKILL)
    near.sendall(b"from the parent")
    assert read_exactly(far, 30) == b"from the child;from the parent"
    far.sendall(b"answer")
    assert near.recv(100) == b"answer"


def test_a_killed_last_holder_ends_the_stream(pair: Pair) -> None:
    near, far = pair
    with Gate() as started:

        def hold() -> None:
            near.sendall(b"last words")
            started.open()
            signal.pause()

        with forked(without(far, hold)) as child:
            near.close()
            started.wait()
            os.kill(child, signal.SIGKILL)
            assert read_to_eof(far) == b"last words"
