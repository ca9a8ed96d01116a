"""Works about data, on one settled connection: what the client times and what the server does meanwhile.

The timed loops hold bound methods in locals and check what they received once per batch, so that what is
timed is the sockets. The methods are looked up after the connection has settled.
"""

from __future__ import annotations

import socket
from itertools import repeat
from time import perf_counter

from bench.warmup import Order
from bench.worker import BenchError, Report, Role

WHOLE = 4096  # bytes up to which a message arrives in one piece on every path (verified after the loop)
BULK_BUFFER = 64 << 10  # bytes the receiver of a stream offers at least
DONE = b"."


# --- ping-pong ----------------------------------------------------------------------------------------------


def drive_pingpong(sock: socket.socket, order: Order, role: Role) -> Report:
    size = order["size"]
    if order.get("spin"):
        exchange, batch = exchange_spinning, 100
        sock.setblocking(False)
    elif size <= WHOLE:
        exchange, batch = exchange_small, 100
    else:
        exchange, batch = exchange_large, 10
    message = b"m" * size
    exchange(sock, message, batch, order["warm"])
    count, elapsed = exchange(sock, message, batch, order["seconds"])
    path = role.path_of(sock)
    sock.setblocking(True)
    sock.shutdown(socket.SHUT_WR)
    if sock.recv(1):
        raise BenchError("echoes came in pieces: the loop counted more round trips than there were")
    return {
        "half_round_trip": elapsed / count / 2,
        "count": count,
        "elapsed": elapsed,
        "payload_bytes": [count * size, count * size],
        **path,
    }


def exchange_small(sock: socket.socket, message: bytes, batch: int, seconds: float) -> tuple[int, float]:
    """Round trips of a message that travels in one piece; returns their number and the seconds they took."""
    send, recv, size = sock.send, sock.recv, len(message)
    count, start = 0, perf_counter()
    while True:
        for _ in repeat(None, batch):
            send(message)
            data = recv(size)
        count += batch
        elapsed = perf_counter() - start
        if data != message:
            raise BenchError("the echo is not what was sent")
        if elapsed >= seconds:
            return count, elapsed


def exchange_spinning(sock: socket.socket, message: bytes, batch: int, seconds: float) -> tuple[int, float]:
    """As `exchange_small`, on a non-blocking socket that is asked again until it has the answer."""
    send, recv, size = sock.send, sock.recv, len(message)
    count, start = 0, perf_counter()
    while True:
        for _ in repeat(None, batch):
            send(message)
            while True:
                try:
                    data = recv(size)
                except BlockingIOError:
                    continue
                break
        count += batch
        elapsed = perf_counter() - start
        if data != message:
            raise BenchError("the echo is not what was sent")
        if elapsed >= seconds:
            return count, elapsed


def exchange_large(sock: socket.socket, message: bytes, batch: int, seconds: float) -> tuple[int, float]:
    """Round trips of a message that may arrive in pieces, whole before it is answered."""
    sendall, recv_into, size = sock.sendall, sock.recv_into, len(message)
    buffer = bytearray(size)
    view = memoryview(buffer)
    count, start = 0, perf_counter()
    while True:
        for _ in repeat(None, batch):
            sendall(message)
            got = recv_into(view)
            while got < size:
                more = recv_into(view[got:])
                if not more:
                    raise BenchError("the peer closed in the middle of a message")
                got += more
        count += batch
        elapsed = perf_counter() - start
        if elapsed >= seconds:
            if buffer != message:
                raise BenchError("the echo is not what was sent")
            return count, elapsed


def serve_pingpong(sock: socket.socket, order: Order) -> None:
    size = order["size"]
    if order.get("spin"):
        echo_spinning(sock, size)
    elif size <= WHOLE:
        send, recv = sock.send, sock.recv
        while data := recv(size):
            send(data)
    else:
        echo_large(sock, size)


def echo_spinning(sock: socket.socket, size: int) -> None:
    sock.setblocking(False)
    send, recv = sock.send, sock.recv
    while True:
        try:
            data = recv(size)
        except BlockingIOError:
            continue
        if not data:
            return
        send(data)


def echo_large(sock: socket.socket, size: int) -> None:
    sendall, recv_into = sock.sendall, sock.recv_into
    buffer = bytearray(size)
    view = memoryview(buffer)
    while got := recv_into(view):
        while got < size:
            more = recv_into(view[got:])
            if not more:
                raise BenchError("the peer closed in the middle of a message")
            got += more
        sendall(buffer)


# --- stream -------------------------------------------------------------------------------------------------


def drive_stream(sock: socket.socket, order: Order, role: Role) -> Report:
    """Rapid sends, then an acknowledgement from the receiver (SOVIA, section 5.1), block after block."""
    size = order["size"]
    message, block = b"m" * size, order["block"]
    send_blocks(sock, message, block, order["warm"])
    blocks, elapsed = send_blocks(sock, message, block, order["seconds"])
    return {
        "messages_per_second": blocks * block / elapsed,
        "bytes_per_second": blocks * block * size / elapsed,
        "count": blocks * block,
        "elapsed": elapsed,
        "payload_bytes": [blocks * block * size, blocks * len(DONE)],
        **role.path_of(sock),
    }


def send_blocks(sock: socket.socket, message: bytes, block: int, seconds: float) -> tuple[int, float]:
    sendall, recv = sock.sendall, sock.recv
    blocks, start = 0, perf_counter()
    while True:
        for _ in repeat(None, block):
            sendall(message)
        if recv(1) != DONE:
            raise BenchError("the receiver did not acknowledge")
        blocks += 1
        elapsed = perf_counter() - start
        if elapsed >= seconds:
            return blocks, elapsed


def serve_stream(sock: socket.socket, order: Order) -> None:
    size = order["size"]
    expected = size * order["block"]
    receive = receive_block if order.get("allocating") else receive_block_into
    buffer = bytearray(max(size, BULK_BUFFER))
    while receive(sock, expected, buffer):
        sock.sendall(DONE)


def receive_block(sock: socket.socket, expected: int, _buffer: bytearray) -> bool:
    """Receive one block with `recv`; false at the end of the stream."""
    recv, got = sock.recv, 0
    while got < expected:
        data = recv(65536)
        if not data:
            break
        got += len(data)
    return whole_block(got, expected)


def receive_block_into(sock: socket.socket, expected: int, buffer: bytearray) -> bool:
    """Receive one block with `recv_into`; false at the end of the stream."""
    recv_into, got = sock.recv_into, 0
    while got < expected:
        count = recv_into(buffer)
        if not count:
            break
        got += count
    return whole_block(got, expected)


def whole_block(got: int, expected: int) -> bool:
    if got not in (0, expected):
        raise BenchError(f"the stream ended after {got} of {expected} bytes of a block")
    return got == expected
