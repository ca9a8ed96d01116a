"""Addresses and identity of a connection are the kernel's own, before and after the move."""

import errno
import socket

import pytest
from harness.pairs import FAMILIES, Pair, raises_errno, reset


@pytest.mark.parametrize("family", FAMILIES)
def test_each_end_names_the_other(pair: Pair, family: int) -> None:
    near, far = pair
    assert near.getpeername() == far.getsockname()
    assert far.getpeername() == near.getsockname()
    assert near.getsockname()[0] == FAMILIES[family]
    assert near.family == far.family == family
    assert near.type == far.type == socket.SOCK_STREAM
    assert near.proto in (0, socket.IPPROTO_TCP)


def test_a_reset_peer_has_no_name(pair: Pair) -> None:
    near, far = pair
    own = near.getsockname()
    reset(far)
    with raises_errno(errno.ECONNRESET):
        near.recv(1)
    with raises_errno(errno.ENOTCONN):
        near.getpeername()
    assert near.getsockname() == own


def test_connecting_a_connected_socket(pair: Pair) -> None:
    near, far = pair
    with raises_errno(errno.EISCONN):
        near.connect(near.getpeername())
    assert near.connect_ex(near.getpeername()) == errno.EISCONN
    near.sendall(b"still here")
    assert far.recv(100) == b"still here"


def test_repr_names_both_addresses(pair: Pair) -> None:
    near, _ = pair
    text = repr(near)
    assert f"laddr={near.getsockname()}" in text
    assert f"raddr={near.getpeername()}" in text
    assert f"fd={near.fileno()}" in text
