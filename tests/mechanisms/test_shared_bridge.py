"""A bridge for one holder of a connection that others hold as well: what the end of its reader means to them."""

import os
import socket

import pytest
from conformance.blocking.processes import Gate, forked
from harness.pairs import make_pair, read_exactly, read_to_eof, taken_back

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_a_reader_that_shuts_down_and_closes_ends_the_stream_for_all(kind: str) -> None:
    """So a program ends a connection whose descriptor a child has inherited."""

    def holds() -> None:
        pair.far.close()
        over.wait()

    with make_pair(kind) as pair, Gate() as over, forked(holds):
        pair.far.sendall(b"unread")
        pair.far.shutdown(socket.SHUT_WR)
        with taken_back(pair.near) as raw:
            assert read_to_eof(raw) == b"unread"
            raw.sendall(b"answer")
            raw.shutdown(socket.SHUT_WR)
        try:
            assert read_to_eof(pair.far) == b"answer"
        finally:
            over.open()


@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_another_holder_sends_after_a_reader_has_closed(kind: str) -> None:
    """On TCP. Over a bridge it does not: a close looks there as a shutdown does, which ends the stream for all."""

    def sends() -> None:
        pair.far.close()
        closed.wait()
        try:
            pair.near.sendall(b"more")
        except BrokenPipeError:
            os._exit(0 if kind == "ring" else 9)
        assert kind == "kernel"

    with make_pair(kind) as pair, Gate() as closed, forked(sends):
        pair.far.sendall(b"unread")
        pair.far.shutdown(socket.SHUT_WR)
        with taken_back(pair.near) as raw:
            assert read_exactly(raw, 6) == b"unread"
            raw.sendall(b"answer")
        assert read_exactly(pair.far, 6) == b"answer"
        if kind == "ring":
            assert pair.far.recv(1) == b""
        closed.open()
        assert read_to_eof(pair.far) == (b"more" if kind == "kernel" else b"")
