"""Message sockets: a ping-pong over `multiprocessing.connection`, whose messages keep their boundaries."""

from __future__ import annotations

import socket

from bench.warmup import Address, Order
from bench.worker import BenchError, Report, Role
from research.loops import calls, moving, offer, offered

KEY = b"papers"


def serve_messages(listener: socket.socket, order: Order, role: Role) -> Report:
    import threading
    from multiprocessing.connection import Listener

    def echo() -> None:
        with server.accept() as connection:
            try:
                while True:
                    connection.send_bytes(connection.recv_bytes())
            except EOFError:
                pass

    with moving(role) as report, Listener(("127.0.0.1", 0), "AF_INET", authkey=KEY) as server:
        thread = threading.Thread(target=echo)
        thread.start()
        offer(listener, server.address[1])
        thread.join(5)
    return report


def drive_messages(address: Address, order: Order, role: Role) -> Report:
    from multiprocessing.connection import Client

    message = b"m" * order["size"]
    with (
        offered(address) as port, moving(role) as report,
        Client(("127.0.0.1", port), "AF_INET", authkey=KEY) as connection,
    ):  # fmt: skip

        def call() -> None:
            connection.send_bytes(message)
            if connection.recv_bytes() != message:
                raise BenchError("the echo is not what was sent")

        elapsed, count = calls(call, order)
    return {"half_round_trip": elapsed / 2, "count": count, **report}
