"""One sample, seen from both ends.

It starts with a connection on which the client and the server exchange single bytes until the connection is
where it belongs (`bench.warmup.settle`). Then the client sends its order, a JSON object that tells the
server which loop to run and with what. Works about data use this very connection, works about connections
make their own after it was closed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from importlib import import_module

from bench import aio, connections, data, http
from bench.warmup import GO, Address, Order, answer_settle, connect, receive_exactly, set_buffers, set_nodelay, settle
from bench.worker import Report, Role

DATA_LOOPS = {"pingpong": (data.drive_pingpong, data.serve_pingpong), "stream": (data.drive_stream, data.serve_stream)}
CONNECTION_LOOPS = {
    "one_shot": (connections.drive_one_shot, connections.serve_one_shot),
    "requests": (connections.drive_requests, connections.serve_requests),
    "idle": (connections.drive_idle, connections.serve_idle),
    "aio": (aio.drive_echo, aio.serve_echo),
    "http": (http.drive_http, http.serve_http),
    "aio_one_shot": (aio.drive_one_shot, aio.serve_one_shot),
}


def drive(address: Address, order: Order, role: Role) -> Report:
    """The client's side of one sample; returns its figures.

    They include the bytes that the loop timed ("payload_bytes") and those that went over the ring meanwhile
    ("ring_bytes"), each a pair of sent and received, for the harness to compare.

    Raises BenchError when the run was not what it should have been, and OSError as the sockets do.
    """
    loop = order["loop"]
    with connect(address) as sock:
        if order.get("nodelay"):
            set_nodelay(sock)
        if order.get("buffers"):
            set_buffers(sock, order["buffers"])
        if loop in DATA_LOOPS:
            settle(sock, role)
        text = json.dumps(order).encode()
        sock.sendall(GO + len(text).to_bytes(4, "big") + text)
        receive_exactly(sock, 1)
        if loop in DATA_LOOPS:
            before = role.ring_bytes()
            report = DATA_LOOPS[loop][0](sock, order, role)
            moved = [now - then for now, then in zip(role.ring_bytes(), before, strict=True)]
            return {**report, "ring_bytes": moved}
    return connection_loop(loop)[0](address, order, role)


def serve(listener: socket.socket, role: Role) -> Report:
    """The server's side of one sample; returns the path of its end and what its loop found."""
    listener.setblocking(True)  # an event loop may have had it
    sock, _ = listener.accept()
    with sock:
        if not answer_settle(sock, role):
            return {**role.path_of(sock), "gave_up": True}
        order = json.loads(receive_exactly(sock, int.from_bytes(receive_exactly(sock, 4), "big")))
        if order.get("nodelay"):
            set_nodelay(sock)
        if order.get("buffers"):
            set_buffers(sock, order["buffers"])
        path = role.path_of(sock)
        sock.sendall(GO)
        if order["loop"] in DATA_LOOPS:
            DATA_LOOPS[order["loop"]][1](sock, order)
            return path
    return connection_loop(order["loop"])[1](listener, order, role)


def connection_loop(loop: str) -> tuple[Callable[..., Report], Callable[..., Report]]:
    """The two ends of a loop that makes its own connections: one of the table, or "package.module:name" for
    `drive_name` and `serve_name` of a module that is loaded for it."""
    module, colon, name = loop.partition(":")
    if not colon:
        return CONNECTION_LOOPS[loop]
    loaded = import_module(module)
    return getattr(loaded, f"drive_{name}"), getattr(loaded, f"serve_{name}")
