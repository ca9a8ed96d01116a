"""Several threads send, receive, shut and close one socket at once."""

import collections
import os
import socket

import pytest
from harness.pairs import KINDS, Pair, Task, described, payload, poll_mask, read_exactly, read_to_eof, until

WRITERS = 4


def words_of(writer: int, count: int) -> bytes:
    """A stream that only this writer sends: the values from 64 times its number on, over and over."""
    return bytes(range(64 * writer, 64 * writer + 64)) * count


def send_in_pieces(sock: socket.socket, data: bytes, piece: int) -> None:
    for start in range(0, len(data), piece):
        sock.sendall(data[start : start + piece])


@pytest.mark.parametrize("piece", [1, 40, 3000, 100_000])
def test_writers_do_not_mix_their_own_order(pair: Pair, piece: int) -> None:
    near, far = pair
    count = min(20_000, piece * 50)
    reader = Task(read_to_eof, far)
    writers = [Task(send_in_pieces, near, words_of(writer, count), piece) for writer in range(WRITERS)]
    for writer in writers:
        writer.result()
    near.shutdown(socket.SHUT_WR)
    received = reader.result()
    for writer in range(WRITERS):
        own = bytes(range(64 * writer, 64 * writer + 64))
        others = bytes(value for value in range(256) if value not in own)
        assert received.translate(None, others) == words_of(writer, count)


def test_readers_share_the_bytes_among_them(pair: Pair) -> None:
    near, far = pair
    data = payload(2 << 20)
    readers = [Task(read_to_eof, far) for _ in range(3)]
    near.sendall(data)
    near.shutdown(socket.SHUT_WR)
    received = collections.Counter()
    for reader in readers:
        received.update(reader.result())
    assert received == collections.Counter(data)


def test_both_directions_with_two_threads_on_each_side(pair: Pair) -> None:
    tasks = []
    for sender, receiver in (tuple(pair), tuple(pair)[::-1]):
        readers = [Task(read_to_eof, receiver) for _ in range(2)]
        writers = [Task(send_in_pieces, sender, bytes([mark]) * 300_000, 777) for mark in (1, 2)]
        tasks.append((sender, writers, readers))
    for sender, writers, _ in tasks:
        for writer in writers:
            writer.result()
        sender.shutdown(socket.SHUT_WR)
    for _, _, readers in tasks:
        received = collections.Counter()
        for reader in readers:
            received.update(reader.result())
        assert received == {1: 300_000, 2: 300_000}


def test_waiting_readers_get_a_byte_each_and_then_the_end(pair: Pair) -> None:
    near, far = pair
    readers = [Task(near.recv, 1).until_asleep() for _ in range(6)]
    far.sendall(b"abcd")
    until(lambda: sum(reader.is_alive() for reader in readers) == 2, "four of them have one")
    far.close()
    assert sorted(reader.result() for reader in readers) == [b"", b"", b"a", b"b", b"c", b"d"]


def test_closing_does_not_wake_a_waiting_receive(pair: Pair) -> None:
    near, far = pair
    waiting = Task(near.recv, 100).until_asleep()
    near.close()
    assert waiting.until_asleep().is_alive()
    assert near.fileno() == -1
    assert not poll_mask(far) & 1, "the stream ends when the call does"
    far.sendall(b"late, but delivered")
    assert waiting.result() == b"late, but delivered"
    assert far.recv(1) == b""


def test_threads_take_turns_through_the_connection(pair: Pair) -> None:
    near, far = pair
    rounds = 300
    log: list[int] = []

    def play(sock: socket.socket, first: bool) -> None:
        for number in range(rounds):
            if first:
                sock.sendall(number.to_bytes(4, "big"))
            log.append(int.from_bytes(read_exactly(sock, 4), "big"))
            if not first:
                sock.sendall(number.to_bytes(4, "big"))

    players = [Task(play, near, True), Task(play, far, False)]
    for player in players:
        player.result()
    assert sorted(log) == sorted([*range(rounds), *range(rounds)])
    pair.check_path()


def meet(near: socket.socket, far: socket.socket) -> None:
    """Both ends find each other, with nothing said from near to far."""
    for _ in range(100):
        far.sendall(b".")
        assert near.recv(1) == b"."
        if described(near, "peer_consents"):
            return
    assert KINDS["midstream"].moves  # (kernel TCP, or on the ring already: there is nobody to find)


@pytest.mark.parametrize("kind", ["kernel", "midstream"])
def test_a_read_by_number_while_another_thread_moves_the_connection(pair: Pair) -> None:
    """What wakes the reader is what the peer has sent, not a byte that tells of it."""
    near, far = pair
    reader = Task(os.read, far.fileno(), 100).until_asleep()
    meet(near, far)
    near.sendall(b"data")
    assert reader.result() == b"data"


@pytest.mark.parametrize("kind", ["kernel", "midstream"])
def test_a_write_by_number_while_another_thread_moves_the_connection(pair: Pair) -> None:
    near, far = pair
    data = payload(6_000_000).replace(b"\xff", b"")
    writer = Task(os.write, near.fileno(), data).until_asleep()
    meet(near, far)
    reader = Task(read_to_eof, far)
    other = Task(send_in_pieces, near, b"\xff" * 200, 1)
    written = writer.result()
    other.result()
    near.shutdown(socket.SHUT_WR)
    assert collections.Counter(reader.result()) == collections.Counter(data[:written]) + collections.Counter({255: 200})
