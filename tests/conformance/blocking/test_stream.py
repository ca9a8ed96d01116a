"""Long streams arrive whole and in order, however they are cut on either side."""

import hashlib
import random
import socket
import time

import pytest
from harness.pairs import FAMILIES, KINDS, Pair, Task, path_of, payload, until


def send_in(sock: socket.socket, data: bytes, sizes: list[int]) -> None:
    """Sends ``data`` cut into pieces of these sizes, over and over."""
    view = memoryview(data)
    while view:
        for size in sizes:
            sock.sendall(view[:size])
            view = view[size:]


def digest_in(sock: socket.socket, total: int, sizes: list[int]) -> str:
    """Digest of the next ``total`` bytes, asked for in these sizes, over and over."""
    digest = hashlib.sha256()
    while total:
        for size in sizes:
            chunk = sock.recv(min(size, total)) if total else b""
            digest.update(chunk)
            total -= len(chunk)
    return digest.hexdigest()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("received", [7, 4096, 32768, 1 << 20])
@pytest.mark.parametrize("sent", [1, 48, 1000, 32768, 100_003, 1 << 20])
def test_pieces_are_reassembled_whatever_their_sizes(pair: Pair, sent: int, received: int) -> None:
    near, far = pair
    data = payload(min(4 << 20, sent * 5000, received * 5000))
    reader = Task(digest_in, far, len(data), [received])
    send_in(near, data, [sent])
    assert reader.result() == digest_of(data)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_directions_stream_at_once(pair: Pair) -> None:
    sizes = [random.Random(1).randrange(1, 70_000) for _ in range(100)]
    tasks, digests = [], []
    for seed, (sender, receiver) in enumerate([tuple(pair), tuple(pair)[::-1]]):
        data = payload(8 << 20, seed)
        digests.append(digest_of(data))
        tasks.append((Task(send_in, sender, data, sizes), Task(digest_in, receiver, len(data), sizes[::-1])))
    for (writer, reader), digest in zip(tasks, digests, strict=True):
        writer.result()
        assert reader.result() == digest
    pair.check_path()


def test_one_sendall_moves_to_the_ring_on_its_way(pair: Pair) -> None:
    near, far = pair
    data = payload(64 << 20)

    def read() -> str:
        digest, left = hashlib.sha256(), len(data)
        while left and (chunk := far.recv(1 << 18)):
            digest.update(chunk)
            left -= len(chunk)
            if KINDS[pair.kind].moves and path_of(near) != "ring":
                time.sleep(0.005)  # or the call might be over before the connection threads have run
        return digest.hexdigest()

    reader = Task(read)
    near.sendall(data)
    assert reader.result() == digest_of(data)
    assert path_of(near) == ("ring" if KINDS[pair.kind].moves else "tcp")


def test_the_connection_moves_while_bytes_wait_unread(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"waiting since the start;")
    for number in range(50):
        far.sendall(b"%03d" % number)
        near.sendall(b"%03d" % number)
        assert near.recv(3, socket.MSG_WAITALL) == b"%03d" % number
    expected = b"waiting since the start;" + b"".join(b"%03d" % number for number in range(50))
    assert until(lambda: len(far.recv(1000, socket.MSG_PEEK)) == len(expected), "everything is there")
    assert far.recv(10) == expected[:10]
    assert far.recv(1000) == expected[10:]
