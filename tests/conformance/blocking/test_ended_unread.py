"""Bytes that a socket has not read yet when both streams have ended: the kernel then tells less of the connection."""

import socket
from collections.abc import Iterator

import pytest
from harness.pairs import Pair, described, make_pair, read_exactly, read_to_eof, until

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(params=["kernel", "ring", "midstream"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with make_pair(request.param) as made:
        yield made


def meet(near: socket.socket, far: socket.socket, kind: str) -> None:
    """What near sends next goes to the ring, and what it has sent before went to the kernel."""

    def met() -> object:
        far.sendall(b".")
        assert near.recv(1) == b"."
        return kind == "kernel" or described(near, "peer_consents")

    until(met, "both ends have found each other")


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("early", [1, 2, 3])
def test_both_streams_have_ended(pair: Pair, early: int, first: str) -> None:
    near, far = pair
    near.sendall(b"abc"[:early])
    meet(near, far, pair.kind)
    if first == "far":
        far.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
    near.sendall(b"defgh")
    near.shutdown(socket.SHUT_WR)
    if first == "near":
        far.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
    assert read_to_eof(far) == b"abc"[:early] + b"defgh"


@pytest.mark.parametrize("early", [1, 2, 3])
def test_the_sender_has_closed_and_answers_with_a_reset(pair: Pair, early: int) -> None:
    near, far = pair
    near.sendall(b"abc"[:early])
    meet(near, far, pair.kind)
    near.sendall(b"defgh")
    near.shutdown(socket.SHUT_WR)
    near.close()
    far.sendall(b"nobody reads this")
    assert read_exactly(far, early + 5) == b"abc"[:early] + b"defgh"
