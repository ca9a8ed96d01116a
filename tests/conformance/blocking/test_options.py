"""Socket options are the kernel's, and those that change how bytes flow do so on the ring too."""

import errno
import operator
import socket
import struct
from socket import IPPROTO_TCP, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET

import pytest
from harness.pairs import (
    Pair,
    bind_beside,
    configured,
    error_of,
    fill,
    listening,
    path_of,
    pattern,
    raises_errno,
    read_exactly,
    socket_class,
    standing,
    until,
)  # fmt: skip

OPTIONS = {
    "TCP_NODELAY": (IPPROTO_TCP, socket.TCP_NODELAY, 1),
    "TCP_QUICKACK": (IPPROTO_TCP, socket.TCP_QUICKACK, 1),
    "TCP_USER_TIMEOUT": (IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 12_000),
    "TCP_KEEPIDLE": (IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
    "SO_KEEPALIVE": (SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "SO_REUSEADDR": (SOL_SOCKET, socket.SO_REUSEADDR, 1),
    "SO_RCVBUF": (SOL_SOCKET, SO_RCVBUF, 50_000),
    "SO_SNDBUF": (SOL_SOCKET, SO_SNDBUF, 60_000),
    "SO_OOBINLINE": (SOL_SOCKET, socket.SO_OOBINLINE, 1),
    "SO_LINGER": (SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3)),
    "SO_RCVTIMEO": (SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 500_000)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_reads_back_as_on_tcp(pair: Pair, reference: Pair, name: str) -> None:
    level, option, value = OPTIONS[name]
    for sock in (pair.near, reference.near):
        assert sock.setsockopt(level, option, value) is None
    assert pair.near.getsockopt(level, option, 16) == reference.near.getsockopt(level, option, 16)
    pair.near.sendall(b"still works")
    assert pair.far.recv(100) == b"still works"


def test_unknown_options(pair: Pair, reference: Pair) -> None:
    for call in (
        lambda sock: sock.getsockopt(SOL_SOCKET, 31_337),
        lambda sock: sock.setsockopt(SOL_SOCKET, 31_337, 1),
        lambda sock: sock.setsockopt(SOL_SOCKET, SO_RCVBUF, "large"),
        lambda sock: sock.setsockopt(SOL_SOCKET, SO_RCVBUF, b""),
        lambda sock: sock.getsockopt(SOL_SOCKET, SO_RCVBUF, -1),
    ):
        assert error_of(call, pair.near) == error_of(call, reference.near)


@pytest.mark.parametrize("name", ["SO_OOBINLINE", "TCP_NODELAY", "SO_KEEPALIVE"])
def test_every_way_to_give_and_to_ask_for_a_number(pair: Pair, reference: Pair, name: str) -> None:
    level, option, _ = OPTIONS[name]

    def outcome(sock: socket.socket, *value: object) -> object:
        try:
            sock.setsockopt(level, option, *value)
            return sock.getsockopt(level, option)
        except (OSError, TypeError, OverflowError) as error:
            return type(error), error.args

    number = struct.Struct("i").pack
    texts = (number(1), number(0), bytearray(number(7)), number(0) + b"more", b"", b"\1")
    for value in (*texts, True, 0, "1", 1.0, 2**40):
        assert outcome(pair.near, value) == outcome(reference.near, value), value
    assert outcome(pair.near, None, 4) == outcome(reference.near, None, 4)
    for length in (0, 1, 4, 16):
        assert pair.near.getsockopt(level, option, length) == reference.near.getsockopt(level, option, length)
    for length in (-1, 2_000, "4"):
        ask = operator.methodcaller("getsockopt", level, option, length)
        assert error_of(ask, pair.near) == error_of(ask, reference.near)


@pytest.mark.parametrize("size", [16_384, 65_536])
def test_buffer_sizes_bound_what_is_in_flight(pair: Pair, size: int) -> None:
    near, far = pair
    near.setsockopt(SOL_SOCKET, SO_SNDBUF, size)
    far.setsockopt(SOL_SOCKET, SO_RCVBUF, size)
    both = near.getsockopt(SOL_SOCKET, SO_SNDBUF) + far.getsockopt(SOL_SOCKET, SO_RCVBUF)
    sent = fill(near)
    assert 0 < sent <= 2 * both, "the kernel lets a window that it offered before stand, hence twice"
    assert read_exactly(far, sent) == pattern(sent)


def test_so_error_tells_of_a_reset_once(pair: Pair) -> None:
    near, far = pair
    assert near.getsockopt(SOL_SOCKET, socket.SO_ERROR) == 0
    near.sendall(b"never read")
    far.close()
    error = until(lambda: near.getsockopt(SOL_SOCKET, socket.SO_ERROR), "the reset arrived")
    assert error == errno.ECONNRESET
    assert near.getsockopt(SOL_SOCKET, socket.SO_ERROR) == 0
    assert near.recv(1) == b""
    with raises_errno(errno.EPIPE):
        near.send(b"x")


def test_a_corked_stream_flows_when_uncorked(pair: Pair) -> None:
    near, far = pair
    near.setsockopt(IPPROTO_TCP, socket.TCP_CORK, 1)
    near.sendall(b"head;")
    near.sendall(b"body")
    near.setsockopt(IPPROTO_TCP, socket.TCP_CORK, 0)
    assert read_exactly(far, 9) == b"head;body"


@pytest.mark.parametrize("corked", ["seeker", "publisher", "both"])
@pytest.mark.parametrize("below", [True, False], ids=["below", "above"])
def test_a_connection_that_is_corked_for_each_message_moves(corked: str, below: bool) -> None:
    """Servers cork for each answer. It looks for its peer while it is not corked."""
    with configured("midstream"), listening() as listener, socket_class(True)() as near:
        bind_beside(near, listener.getsockname()[1], below)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        with far:
            ends = {"seeker": (near,), "publisher": (far,), "both": (near, far)}[corked]
            for end in ends:
                end.setsockopt(IPPROTO_TCP, socket.TCP_CORK, 1)
            for _ in range(400):
                for sender, receiver in ((near, far), (far, near)):
                    if sender in ends:
                        sender.setsockopt(IPPROTO_TCP, socket.TCP_CORK, 1)
                    sender.sendall(b"head;")
                    sender.sendall(b"body")
                    if sender in ends:
                        sender.setsockopt(IPPROTO_TCP, socket.TCP_CORK, 0)
                    assert read_exactly(receiver, 9) == b"head;body"
                if path_of(near) == path_of(far) == "ring":
                    break
            else:
                pytest.fail(f"{standing(near)}, {standing(far)}")
