"""A ping-pong whose ends receive in a thread of their own: SOVIA's SOVIA_HANDLER (section 3.1)."""

from __future__ import annotations

import socket
import threading
from queue import SimpleQueue

from bench.warmup import GO, Address, Order, answer_settle, connect, set_nodelay, settle
from bench.worker import BenchError, Report, Role
from research.loops import calls


class Handler:
    """Receives whole messages in a thread, and hands them to the thread that waits for them."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock, self.size = sock, size
        self.messages: SimpleQueue[bytes] = SimpleQueue()
        self.thread = threading.Thread(target=self._handle, daemon=True)
        self.thread.start()

    def _handle(self) -> None:
        recv, size, put = self.sock.recv, self.size, self.messages.put
        pieces = b""
        while data := recv(size - len(pieces)):
            pieces += data
            if len(pieces) == size:
                put(pieces)
                pieces = b""
        put(b"")


def drive_handled(address: Address, order: Order, role: Role) -> Report:
    message = b"m" * order["size"]
    with connect(address) as sock:
        set_nodelay(sock)
        settle(sock, role)
        sock.sendall(GO)
        handler = Handler(sock, len(message))

        def call() -> None:
            sock.sendall(message)
            if handler.messages.get() != message:
                raise BenchError("the echo is not what was sent")

        elapsed, count = calls(call, order)
        path = role.path_of(sock)
        sock.shutdown(socket.SHUT_WR)
        handler.thread.join(5)
    return {"half_round_trip": elapsed / 2, "count": count, **path}


def serve_handled(listener: socket.socket, order: Order, role: Role) -> Report:
    sock, _ = listener.accept()
    with sock:
        set_nodelay(sock)
        if not answer_settle(sock, role):
            return role.path_of(sock)
        handler = Handler(sock, order["size"])
        while message := handler.messages.get():
            sock.sendall(message)
        path = role.path_of(sock)
    return path
