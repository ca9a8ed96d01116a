"""Names of a connection that has ended, and a second connect."""

import errno

from harness.pairs import Pair, raises_errno, reset


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
