"""Buffers that calls of the C library are given. What CPython refuses before it calls is CPython's own."""

import os
import socket

import pytest
from harness.pairs import Pair, error_of, read_exactly

WRONG = {
    "sendmsg too many": lambda sock: sock.sendmsg([b"x"] * 2000),
    "recvmsg too many": lambda sock: sock.recvmsg_into([bytearray(1)] * 2000),
    "writev too many": lambda sock: os.writev(sock.fileno(), [b"x"] * 2000),
    "sendmsg address of another family": lambda sock: sock.sendmsg([b"x"], [], 0, "/path"),
    "sendmsg ancillary type": lambda sock: sock.sendmsg([b"x"], [(socket.SOL_SOCKET, 999, b"y")]),
    "shutdown which": lambda sock: sock.shutdown(9),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_told_as_by_the_kernel(pair: Pair, reference: Pair, name: str) -> None:
    near, far = pair
    for sock in (*pair, *reference):
        sock.sendall(b"waiting")
    assert error_of(WRONG[name], near) == error_of(WRONG[name], reference.near)
    assert near.recv(100) == far.recv(100) == b"waiting", "the connection is as it was"


def test_a_sent_buffer_may_be_reused_at_once(pair: Pair) -> None:
    near, far = pair
    buffer = bytearray(40000)
    for number in range(5):
        buffer[:] = bytes([number]) * len(buffer)
        near.sendall(buffer)
    buffer[:] = bytes(len(buffer))
    assert read_exactly(far, 200000) == b"".join(bytes([number]) * 40000 for number in range(5))
