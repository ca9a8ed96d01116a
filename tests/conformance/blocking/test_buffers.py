"""Buffers of every shape are taken; wrong arguments raise what the kernel's socket raises."""

import io
import os
import socket
import sys
from array import array

import pytest
from harness.pairs import Pair, error_of, payload, read_exactly

NUMBERS = array("I", range(1000, 1100))
STRIDED = memoryview(bytes(100))[::2]

SENDABLE = {
    "bytes": b"some bytes",
    "bytearray": bytearray(b"some bytes"),
    "memoryview": memoryview(b"some bytes"),
    "slice": memoryview(bytearray(payload(5000)))[17:3001],
    "array": NUMBERS,
    "array slice": memoryview(NUMBERS)[7:93],
    "matrix": memoryview(bytes(range(12))).cast("B", (3, 4)),
    "read-only": memoryview(bytearray(b"some bytes")).toreadonly(),
}


@pytest.mark.parametrize("name", SENDABLE)
def test_send_counts_bytes_of_any_contiguous_buffer(pair: Pair, name: str) -> None:
    near, far = pair
    data = memoryview(SENDABLE[name]).tobytes()
    assert near.send(SENDABLE[name]) == len(data)
    near.sendall(SENDABLE[name])
    assert near.sendmsg([SENDABLE[name], b"", SENDABLE[name]]) == 2 * len(data)
    assert read_exactly(far, 4 * len(data)) == 4 * data


def test_recv_into_an_array_fills_its_bytes(pair: Pair) -> None:
    near, far = pair
    numbers = array("I", [0] * len(NUMBERS))
    far.sendall(NUMBERS)
    assert near.recv_into(numbers, 0, socket.MSG_WAITALL) == len(NUMBERS) * NUMBERS.itemsize
    assert numbers == NUMBERS


def test_a_sent_buffer_may_be_reused_at_once(pair: Pair) -> None:
    near, far = pair
    buffer = bytearray(40000)
    for number in range(5):
        buffer[:] = bytes([number]) * len(buffer)
        near.sendall(buffer)
    buffer[:] = bytes(len(buffer))
    assert read_exactly(far, 200000) == b"".join(bytes([number]) * 40000 for number in range(5))


def send_a_text_file(sock: socket.socket) -> None:
    with open(os.devnull, encoding="ascii") as file:
        sock.sendfile(file)


WRONG = {
    "send str": (TypeError, lambda sock: sock.send("text")),
    "sendall str": (TypeError, lambda sock: sock.sendall("text")),
    "sendmsg str": (TypeError, lambda sock: sock.sendmsg(["text"])),
    "sendmsg no sequence": (TypeError, lambda sock: sock.sendmsg(7)),
    "sendto str": (TypeError, lambda sock: sock.sendto("text", ("127.0.0.1", 9))),
    "send none": (TypeError, lambda sock: sock.send(None)),
    "send strided": (BufferError, lambda sock: sock.send(STRIDED)),
    "sendall strided": (BufferError, lambda sock: sock.sendall(STRIDED)),
    "sendmsg strided": (BufferError, lambda sock: sock.sendmsg([STRIDED])),
    "sendmsg too many": (OSError, lambda sock: sock.sendmsg([b"x"] * 2000)),
    "recvmsg too many": (OSError, lambda sock: sock.recvmsg_into([bytearray(1)] * 2000)),
    "writev too many": (OSError, lambda sock: os.writev(sock.fileno(), [b"x"] * 2000)),
    "send flags": (TypeError, lambda sock: sock.send(b"x", "flags")),
    "send nothing": (TypeError, lambda sock: sock.send()),
    "recv negative": (ValueError, lambda sock: sock.recv(-1)),
    "recv str": (TypeError, lambda sock: sock.recv("1")),
    "recv float": (TypeError, lambda sock: sock.recv(1.0)),
    "recv nothing": (TypeError, lambda sock: sock.recv()),
    "recv beyond memory": (OverflowError, lambda sock: sock.recv(sys.maxsize)),
    "recv beyond size": (OverflowError, lambda sock: sock.recv(1 << 70)),
    "recvfrom negative": (ValueError, lambda sock: sock.recvfrom(-1)),
    "recvmsg negative": (ValueError, lambda sock: sock.recvmsg(-1)),
    "recvmsg negative ancillary": (ValueError, lambda sock: sock.recvmsg(1, -1)),
    "recv_into negative": (ValueError, lambda sock: sock.recv_into(bytearray(4), -1)),
    "recv_into too short": (ValueError, lambda sock: sock.recv_into(bytearray(4), 5)),
    "recv_into bytes": (TypeError, lambda sock: sock.recv_into(bytes(4))),
    "recv_into str": (TypeError, lambda sock: sock.recv_into("text")),
    "recv_into strided": (TypeError, lambda sock: sock.recv_into(memoryview(bytearray(8))[::2])),
    "recvfrom_into negative": (ValueError, lambda sock: sock.recvfrom_into(bytearray(4), -1)),
    "recvfrom_into too short": (ValueError, lambda sock: sock.recvfrom_into(bytearray(4), 5)),
    "recvfrom_into bytes": (TypeError, lambda sock: sock.recvfrom_into(bytes(4))),
    "recvmsg_into no sequence": (TypeError, lambda sock: sock.recvmsg_into(7)),
    "recvmsg_into bytes": (TypeError, lambda sock: sock.recvmsg_into([bytes(4)])),
    "settimeout negative": (ValueError, lambda sock: sock.settimeout(-1)),
    "settimeout str": (TypeError, lambda sock: sock.settimeout("1")),
    "shutdown which": (OSError, lambda sock: sock.shutdown(9)),
    "sendfile negative": (ValueError, lambda sock: sock.sendfile(io.BytesIO(), 0, -1)),
    "sendfile text": (ValueError, send_a_text_file),
    "makefile mode": (ValueError, lambda sock: sock.makefile("x")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise_what_the_kernels_socket_raises(pair: Pair, reference: Pair, name: str) -> None:
    near, far = pair
    expected, call = WRONG[name]
    for sock in (*pair, *reference):
        sock.sendall(b"waiting")
    error = error_of(call, near)
    assert issubclass(error[0], expected)
    assert error == error_of(call, reference.near)
    assert near.recv(100) == far.recv(100) == b"waiting", "the connection is as it was"


WRONG_SENDS = {
    "sendmsg address": lambda sock: sock.sendmsg([b"x"], [], 0, object()),
    "sendmsg address of another family": lambda sock: sock.sendmsg([b"x"], [], 0, "/path"),
    "sendmsg ancillary data": lambda sock: sock.sendmsg([b"x"], object()),
    "sendmsg ancillary item": lambda sock: sock.sendmsg([b"x"], [object()]),
    "sendmsg ancillary tuple": lambda sock: sock.sendmsg([b"x"], [(0, 0)]),
    "sendmsg ancillary payload": lambda sock: sock.sendmsg([b"x"], [(0, 0, object())]),
    "sendmsg unknown ancillary type": lambda sock: sock.sendmsg([b"x"], [(socket.SOL_SOCKET, 999, b"y")]),
    "sendmsg flags": lambda sock: sock.sendmsg([b"x"], [], object()),
    "sendto port": lambda sock: sock.sendto(b"x", ("127.0.0.1", "port")),
    "sendto tuple": lambda sock: sock.sendto(b"x", ("127.0.0.1",)),
    "sendto flags": lambda sock: sock.sendto(b"x", object(), ("127.0.0.1", 1)),
}


@pytest.mark.parametrize("wrong", WRONG_SENDS)
def test_a_send_with_one_wrong_argument_sends_nothing(pair: Pair, reference: Pair, wrong: str) -> None:
    assert error_of(WRONG_SENDS[wrong], pair.near) == error_of(WRONG_SENDS[wrong], reference.near)
    pair.near.sendall(b"done")
    assert pair.far.recv(100) == b"done"
