"""Programs whose peers do not read come through wherever they do on TCP, whose buffers hold more than the ring.

A sender that gets no credits goes on in the kernel. Nobody waits for ever; and a connection that went this way is as
good as any.
"""

from __future__ import annotations

import functools
import socket
import threading
import time

import pairs
import pytest
from pairs import SECONDS, Pair, Task, fill, make_pair, poll_mask, read_exactly, read_to_eof
from processes import running

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

MUCH = 2_000_000
"""Bytes: more than the ring holds (1 MiB), and less than the kernel does with Linux's default limits."""


payload = functools.cache(pairs.payload)


def sends_then_receives(sock: socket.socket, seed: int) -> bytes:
    sock.sendall(payload(MUCH, seed))
    return read_exactly(sock, MUCH)


def meet_head_on(pair: Pair) -> None:
    """Both ends send all they have before they receive anything."""
    other = Task(sends_then_receives, pair.far, 2)
    assert sends_then_receives(pair.near, 1) == payload(MUCH, 2)
    assert other.result() == payload(MUCH, 1)


def test_both_ends_send_before_they_receive(pair: Pair) -> None:
    for _ in range(3):
        meet_head_on(pair)


def test_the_same_with_a_timeout(pair: Pair) -> None:
    """In seconds, and longer than it takes to find out."""
    for sock in pair:
        sock.settimeout(SECONDS)
    meet_head_on(pair)


def test_an_echo_of_more_than_the_client_reads_meanwhile(pair: Pair) -> None:
    near, far = pair

    def echo() -> None:
        while data := far.recv(65536):
            far.sendall(data)
        far.shutdown(socket.SHUT_WR)

    server = Task(echo)
    assert sends_then_receives(near, 3) == payload(MUCH, 3)
    near.shutdown(socket.SHUT_WR)
    assert read_to_eof(near) == b""
    server.result()


def test_a_peer_that_reads_after_something_else_that_comes_behind_the_send(pair: Pair) -> None:
    """It waits for no credits itself, so it takes a second to tell that it is not just slow."""
    near, far = pair
    sent = threading.Event()

    def reads_later() -> bytes:
        assert sent.wait(SECONDS)
        return read_exactly(far, MUCH)

    reader = Task(reads_later)
    near.sendall(payload(MUCH, 4))
    sent.set()
    assert reader.result() == payload(MUCH, 4)


def test_a_timeout_that_is_shorter_than_the_peers_pause(pair: Pair) -> None:
    near, far = pair
    near.settimeout(0.6)
    near.sendall(payload(MUCH, 8))
    assert read_exactly(far, MUCH) == payload(MUCH, 8)


@pytest.fixture
def gone_back(pair: Pair) -> Pair:
    """A pair both of whose senders have gone on in the kernel, where there was a ring."""
    meet_head_on(pair)
    return pair


def test_bytes_come_in_order_afterwards(gone_back: Pair) -> None:
    for size in (1, 100, 3000, 100_000, 1_000_000):
        for sender, receiver in (tuple(gone_back), tuple(reversed(tuple(gone_back)))):
            task = Task(sender.sendall, payload(size, size))
            assert read_exactly(receiver, size) == payload(size, size)
            task.result()


def test_the_ends_afterwards(gone_back: Pair) -> None:
    near, far = gone_back
    near.sendall(b"last")
    near.shutdown(socket.SHUT_WR)
    assert read_to_eof(far) == b"last"
    far.sendall(b"answer")
    far.close()
    assert read_to_eof(near) == b"answer"


def test_a_descriptor_that_is_polled_afterwards(gone_back: Pair) -> None:
    near, far = gone_back
    assert poll_mask(far) == poll_mask(near)
    near.sendall(b"more")
    deadline = time.monotonic() + SECONDS
    while not poll_mask(far) & 1:
        assert time.monotonic() < deadline
    assert far.recv(100) == b"more"
    assert not poll_mask(far) & 1


def test_the_way_out_afterwards(gone_back: Pair) -> None:
    near, far = gone_back
    far.sendall(b"unread")
    with socket.socket(fileno=near.detach()) as raw:
        raw.sendall(b"raw")
        assert read_exactly(far, 3) == b"raw"
        far.sendall(b"more")
        assert read_exactly(raw, 10) == b"unreadmore"


def test_one_direction_alone_goes_back(pair: Pair) -> None:
    """What comes from the end that does not read stays where it is."""
    near, far = pair
    sender = Task(near.sendall, payload(MUCH, 7))
    sender.join(2)
    far.sendall(b"meanwhile")
    assert near.recv(100) == b"meanwhile"
    assert read_exactly(far, MUCH) == payload(MUCH, 7)
    sender.result()
    for size in (1, 5000):
        near.sendall(payload(size))
        assert read_exactly(far, size) == payload(size)
        far.sendall(payload(size))
        assert read_exactly(near, size) == payload(size)


@pytest.mark.parametrize("how", ["close", "kill"])
def test_a_peer_that_goes_without_reading(how: str) -> None:
    """The sender that has gone on in the kernel hears of it there."""
    program = """
        with fastsock.configure(move_after=0, meeting_ms=2000), fastsock.socket() as sock:
            sock.connect(("127.0.0.1", int(sys.argv[1])))
            sock.sendall(b".")
            assert sock.recv(1) == b"."
            say(path_of(sock))
            told()
    """
    settings = fastsock.configure(move_after=0, meeting_ms=2000)
    with settings, fastsock.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with running(program, listener.getsockname()[1]) as client, listener.accept()[0] as sock:
            assert sock.recv(1) == b"."
            sock.sendall(b".")
            assert client.line() == "ring"
            sender = Task(sock.sendall, payload(16_000_000))
            sender.join(1.5)  # it goes on in the kernel by then
            assert sender.is_alive()
            if how == "kill":
                client.kill()
            else:
                client.tell()
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                sender.result()


def test_a_pause_of_the_reader_is_no_reason() -> None:
    """A reader that comes back in time finds the stream on the ring."""
    with make_pair("ring") as pair:
        near, far = pair
        size = fill(near)
        sender = Task(near.sendall, b"x").until_asleep()
        assert len(read_exactly(far, size + 1)) == size + 1
        sender.result()
        assert fastsock.path_of(near) == fastsock.path_of(far) == fastsock.Path("ring", "both directions")
