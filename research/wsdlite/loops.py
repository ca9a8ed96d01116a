"""Loops of WSDLite's figures: ping-pong and stream with their CPU time, and sockets that are not intercepted."""

from __future__ import annotations

import os
import socket
import sys
from time import perf_counter, process_time
from typing import Any

from bench import data
from bench.warmup import GO, Address, Order, answer_settle, connect, set_nodelay, settle
from bench.worker import BenchError, Report, Role


def begin(sock: socket.socket, role: Role) -> None:
    """Drives traffic until the connection is where it is expected. The server's part is `answer`."""
    settle(sock, role)
    sock.sendall(GO)


def answer(sock: socket.socket, role: Role) -> None:
    if not answer_settle(sock, role):
        raise BenchError("the client went away before its connection was where it is expected")


def drive_costs(address: Address, order: Order, role: Role) -> Report:
    """A ping-pong, then a stream, each with the CPU time that this end takes for it."""
    size, seconds = order["size"], order["seconds"]
    message = b"m" * size
    with connect(address) as sock:
        set_nodelay(sock)
        begin(sock, role)
        data.exchange_large(sock, message, 10, order["warm"])
        cpu, start = process_time(), perf_counter()
        count, elapsed = data.exchange_large(sock, message, 10, seconds)
        both = perf_counter() - start
        used = process_time() - cpu
        path = role.path_of(sock)
        sock.shutdown(socket.SHUT_WR)
        if sock.recv(1):
            raise BenchError("more came back than was sent")
    streamed = drive_stream(address, order, role)
    return {
        "half_round_trip": elapsed / count / 2, "pingpong_cpu": used / both, "count": count, **streamed, **path,
    }  # fmt: skip


def drive_stream(address: Address, order: Order, role: Role) -> Report:
    size, block = order["size"], order["block"]
    message = b"m" * size
    with connect(address) as sock:
        begin(sock, role)
        data.send_blocks(sock, message, block, order["warm"])
        cpu = process_time()
        blocks, elapsed = data.send_blocks(sock, message, block, order["seconds"])
        used = process_time() - cpu
    return {"bytes_per_second": blocks * block * size / elapsed, "sent": blocks * block * size, "stream_cpu": used,
            "stream_seconds": elapsed}  # fmt: skip


def serve_costs(listener: socket.socket, order: Order, role: Role) -> Report:
    """The echo, then the receiver. Its CPU time is of the stream alone, warm-up included, with what it received."""
    sock, _ = listener.accept()
    with sock:
        set_nodelay(sock)
        answer(sock, role)
        data.echo_large(sock, order["size"])
        path = role.path_of(sock)
    sock, _ = listener.accept()
    with sock:
        answer(sock, role)
        expected = order["size"] * order["block"]
        buffer = bytearray(max(order["size"], data.BULK_BUFFER))
        received, cpu, start = 0, process_time(), perf_counter()
        while data.receive_block_into(sock, expected, buffer):
            sock.sendall(data.DONE)
            received += expected
        used, elapsed = process_time() - cpu, perf_counter() - start
    return {"received": received, "stream_cpu": used, "stream_seconds": elapsed, **path}


# --- threads: several connections at once, a thread each ------------------------------------------------------


def drive_threads(address: Address, order: Order, role: Role) -> Report:
    """Ping-pongs of so many threads; round trips of all of them per second."""
    import threading

    count, size = order["threads"], order["size"]
    results: list[tuple[int, float]] = []
    paths: list[Any] = []
    ready = threading.Barrier(count)

    def work() -> None:
        with connect(address) as sock:
            set_nodelay(sock)
            begin(sock, role)
            ready.wait(20)
            results.append(data.exchange_large(sock, b"m" * size, 10, order["seconds"]))
            paths.append(role.path_of(sock))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) != count:
        raise BenchError(f"only {len(results)} of {count} threads came to their end")
    return {"round_trips_per_second": sum(turns / elapsed for turns, elapsed in results), **paths[-1]}


def serve_threads(listener: socket.socket, order: Order, role: Role) -> Report:
    import threading

    paths: list[Any] = []

    def work(sock: socket.socket) -> None:
        with sock:
            set_nodelay(sock)
            answer(sock, role)
            data.echo_large(sock, order["size"])
            paths.append(role.path_of(sock))

    threads = [threading.Thread(target=work, args=(listener.accept()[0],)) for _ in range(order["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(paths[-1])


# --- interception -------------------------------------------------------------------------------------------


def pick_class(kind: str) -> type[socket.socket]:
    """Returns the class that the program uses: the stdlib's, patched or not, or fastsock's without `patch()`."""
    if kind == "explicit":
        module = sys.modules["fastsock"]
        module.unpatch()
        return module.socket  # type: ignore[no-any-return]
    return socket.socket


def drive_intercepted(address: Address, order: Order, role: Role) -> Report:
    """A ping-pong on a socket made by the class that the order names."""
    kind = pick_class(order["class"])
    with kind(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.connect(tuple(address))
        set_nodelay(sock)
        begin(sock, role)
        exchange = data.exchange_small
        exchange(sock, b"m" * order["size"], 100, order["warm"])
        count, elapsed = exchange(sock, b"m" * order["size"], 100, order["seconds"])
        path = role.path_of(sock)
    again(order["class"])
    return {"half_round_trip": elapsed / count / 2, **path}


def serve_intercepted(listener: socket.socket, order: Order, role: Role) -> Report:
    kind = pick_class(order["class"])
    own = kind(listener.family, listener.type, fileno=os.dup(listener.fileno()))
    with own, own.accept()[0] as sock:
        set_nodelay(sock)
        answer(sock, role)
        send, recv, size = sock.send, sock.recv, order["size"]
        while message := recv(size):
            send(message)
        path = role.path_of(sock)
    again(order["class"])
    return path


def again(kind: str) -> None:
    """The role expects to be patched when its sample is over."""
    if kind == "explicit":
        sys.modules["fastsock"].patch()
