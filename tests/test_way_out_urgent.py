"""Urgent bytes before, during and after the way out: no byte of the stream is lost or doubled on their account."""

import random
import select
import socket
import time
from collections.abc import Iterator

import pytest
from hostile import FIN, OOB, Peer, hostile
from pairs import SECONDS, KernelSocket, Pair, Task, deadline, make_pair, payload, read_exactly, read_to_eof, until


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(40):
        yield


@pytest.fixture(params=["kernel", "ring"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with make_pair(request.param) as made:
        yield made


def expose(sock: socket.socket, exposed: bool) -> None:
    if exposed:
        sock.fileno()


def finish(sender: socket.socket, receiver: socket.socket, seed: int = 0) -> None:
    """The rest of the stream, byte by byte, and its end."""
    rest = payload(3000, seed)
    sender.sendall(rest)
    sender.shutdown(socket.SHUT_WR)
    assert read_exactly(receiver, len(rest)) == rest
    assert receiver.recv(1) == b""


@pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
@pytest.mark.parametrize("inline", [0, 1], ids=["apart", "in-line"])
@pytest.mark.parametrize("read", [0, 2, 4, 6], ids="read-{}".format)
def test_the_sender_of_an_urgent_byte_leaves(pair: Pair, read: int, inline: int, exposed: bool) -> None:
    near, far = pair
    expose(far, exposed)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
    expected = b"ab!cdef" if inline else b"abcdef"
    near.send(b"ab!", socket.MSG_OOB)
    near.sendall(b"cd")
    near.sendall(b"ef")
    assert read_exactly(far, read) == expected[:read]
    with KernelSocket(fileno=near.detach()) as raw:
        assert read_exactly(far, len(expected) - read) == expected[read:]
        finish(raw, far)


@pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
def test_urgent_bytes_in_line_behind_the_way_out_are_all_read(pair: Pair, exposed: bool) -> None:
    """A kernel that is to keep urgent bytes apart drops one that nobody has read for the next one: it has to know that
    they are in line before the reader has seen that the sender left."""
    near, far = pair
    expose(far, exposed)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    with KernelSocket(fileno=near.detach()) as raw:
        for byte in b"abc":
            raw.send(bytes([byte]), socket.MSG_OOB)
        assert read_exactly(far, 3) == b"abc"
        finish(raw, far)


@pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
@pytest.mark.parametrize("read", [2, 4, 6], ids="read-{}".format)
def test_the_receiver_of_an_urgent_byte_leaves(pair: Pair, read: int, exposed: bool) -> None:
    near, far = pair
    expose(far, exposed)
    near.send(b"ab!", socket.MSG_OOB)
    near.sendall(b"cd")
    near.sendall(b"ef")
    assert read_exactly(far, read) == b"abcdef"[:read]
    with KernelSocket(fileno=far.detach()) as raw:
        assert read_exactly(raw, 6 - read) == b"abcdef"[read:]
        finish(near, raw)


@pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_both_streams_have_ended(pair: Pair, leaves: bool, exposed: bool) -> None:
    """The kernel no longer tells how far its stream was read."""
    near, far = pair
    expose(far, exposed)
    far.shutdown(socket.SHUT_WR)
    assert near.recv(1) == b""
    near.send(b"ab!", socket.MSG_OOB)
    near.sendall(b"cd")
    near.shutdown(socket.SHUT_WR)
    if leaves:
        with KernelSocket(fileno=far.detach()) as raw:
            assert read_to_eof(raw) == b"abcd"
    else:
        assert read_to_eof(far) == b"abcd"


@pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
@pytest.mark.parametrize("read", [0, 2, 4], ids="read-{}".format)
def test_both_streams_have_ended_and_the_sender_has_left(pair: Pair, read: int, exposed: bool) -> None:
    """Behind the doorbell bytes come bytes that nobody has counted."""
    near, far = pair
    expose(far, exposed)
    far.shutdown(socket.SHUT_WR)
    assert near.recv(1) == b""
    near.send(b"ab!", socket.MSG_OOB)
    near.sendall(b"cd")
    assert read_exactly(far, read) == b"abcd"[:read]
    with KernelSocket(fileno=near.detach()) as raw:
        raw.sendall(b"ef")
        raw.shutdown(socket.SHUT_WR)
    assert read_to_eof(far) == b"abcdef"[read:]


@pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
def test_an_urgent_byte_is_the_kernels_last_and_both_streams_have_ended(exposed: bool) -> None:
    with make_pair("midstream") as (near, far):
        expose(far, exposed)
        near.send(b"ab!", socket.MSG_OOB)
        assert far.recv(2) == b"ab"
        while near._endpoint is None or not near._endpoint.peer_consents:  # type: ignore[attr-defined]
            far.sendall(b".")
            assert near.recv(1) == b"."
        far.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
        near.sendall(b"cd")
        near.sendall(b"ef")
        near.shutdown(socket.SHUT_WR)
        assert read_to_eof(far) == b"cdef"


def leave_while_doorbell_bytes_are_late(peer: Peer) -> bytes:
    """What a half-closed victim reads raw when it has left. The doorbell bytes come with the end of the stream, in one
    segment."""
    peer.meet()
    peer.move()
    peer.consent()
    peer.region.set(peer.side, "urgent", 1 << 32 | 1)
    peer.region.set(peer.side, "rung", 1)
    peer.tcp.send(b"!", socket.MSG_OOB)
    peer.post(b"!", type=OOB)
    peer.post(b"r")
    assert peer.victim.recv(1) == b"r"
    peer.victim.shutdown(socket.SHUT_WR)
    peer.region.set(peer.side, "rung", 1 + 16384)
    peer.region.set(peer.side, "fin", FIN | peer.posted)
    leaving = Task(peer.victim.detach)
    until(lambda: peer.region.get(peer.side, "heard") == 1 + 16384, "the doorbell bytes are awaited")
    time.sleep(0.015)  # they are owed by now
    peer.tcp.send(bytes(16384), socket.MSG_MORE)
    peer.tcp.shutdown(socket.SHUT_WR)
    with KernelSocket(fileno=leaving.result()) as raw:
        return read_to_eof(raw)


def test_late_doorbell_bytes_come_with_the_end_of_both_streams() -> None:
    """While they are awaited the kernel tells how far its stream was read, and with them it ceases to, between two
    looks. (One attempt in four, about, hits the two looks.)"""
    for attempt in range(40):
        with hostile(attempt % 2 == 0) as peer:
            assert leave_while_doorbell_bytes_are_late(peer) == b""


@pytest.mark.parametrize("seed", range(20))
def test_urgent_bytes_in_a_stream_whose_sender_leaves(pair: Pair, seed: int) -> None:
    """The urgent bytes are anywhere, before and behind the end of the ring."""
    chance = random.Random(seed)
    near, far = pair
    expose(far, seed % 2 == 0)
    stream = payload(300_000, seed)
    leaves = chance.randrange(len(stream))

    def send() -> None:
        sock, at = near, 0
        while at < len(stream):
            if sock is near and at >= leaves:
                sock = KernelSocket(fileno=near.detach())
            if chance.random() < 0.1:
                sock.send(b"!", socket.MSG_OOB)
            piece = stream[at : at + chance.choice((1, 60, 5000))]
            sock.sendall(piece)
            at += len(piece)
        sock.close()

    sending = Task(send)
    got = b""
    while piece := far.recv(10_000):
        got += piece
    sending.result()
    # (An urgent byte that a later one follows before it is read is an ordinary one, on TCP.)
    assert len(got) - got.count(b"!") == len(stream) - stream.count(b"!")
    assert got.replace(b"!", b"") == stream.replace(b"!", b"")


@pytest.mark.parametrize("seed", range(20))
def test_no_doorbell_byte_comes_behind_the_end_of_the_ring(seed: int) -> None:
    """A peer that polls reads the last bytes of the ring at the moment at which the other end leaves."""
    with make_pair("ring") as (near, far):
        far.setblocking(False)
        poller = select.poll()
        poller.register(far, select.POLLIN)
        stream = payload(20_000, seed)

        def send() -> None:
            for at in range(0, 10_000, 500):
                near.sendall(stream[at : at + 500])
            with KernelSocket(fileno=near.detach()) as raw:
                raw.sendall(stream[10_000:])

        sending = Task(send)
        got = b""
        while len(got) < len(stream) and poller.poll(SECONDS * 1000):
            try:
                piece = far.recv(700)
            except BlockingIOError:
                continue
            if not piece:
                break
            got += piece
        sending.result()
        assert got == stream
