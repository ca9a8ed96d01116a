"""Works about connections, of which they make their own: one-shot, short-lived, idle."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable
from itertools import repeat
from time import perf_counter

from bench.warmup import GO, Address, Order, answer_settle, connect, receive_exactly, settle
from bench.worker import BenchError, Report, Role

ONE_SHOT_REQUEST, ONE_SHOT_REPLY = b"q" * 16, b"a" * 1024
SMALL_REQUEST, REQUESTS_PER_CONNECTION = b"q" * 64, 100
CHECKED_CONNECTIONS = 20
PULSE = b"x"


def drive_one_shot(address: Address, order: Order, role: Role) -> Report:
    """Connect, 16 bytes up, 1 KiB down to the end of the stream, close."""

    def one() -> None:
        sock = connect(address)
        sock.sendall(ONE_SHOT_REQUEST)
        size = 0
        while data := sock.recv(2048):
            size += len(data)
        sock.close()
        if size != len(ONE_SHOT_REPLY):
            raise BenchError(f"a reply of {size} bytes")

    rate, count, elapsed = repeat_for(one, 20, order)
    connect(address).close()
    return {"connections_per_second": rate, "count": count, "elapsed": elapsed}


def serve_one_shot(listener: socket.socket, _order: Order, _role: Role) -> Report:
    accept = listener.accept
    while True:
        sock, _ = accept()
        if not sock.recv(16):  # the client's last connection, which asks nothing
            sock.close()
            return {}
        sock.sendall(ONE_SHOT_REPLY)
        sock.close()


def drive_requests(address: Address, order: Order, role: Role) -> Report:
    """Connections that live for 100 small requests each; set-up, move and close are part of the work."""

    def one(check: Callable[[socket.socket], None] | None = None) -> None:
        sock = connect(address)
        for _ in repeat(None, REQUESTS_PER_CONNECTION):
            sock.sendall(SMALL_REQUEST)
            data = sock.recv(64)
        if check is not None:
            check(sock)
        sock.close()
        if data != SMALL_REQUEST:
            raise BenchError("the reply is not what was sent")

    rate, count, elapsed = repeat_for(one, 2, order)
    # Looking at the path costs time, so it is looked at on further connections of the same kind.
    paths: list[Report] = []
    for _ in range(CHECKED_CONNECTIONS):
        one(lambda sock: paths.append(role.path_of(sock)))
    connect(address).close()
    return {
        "requests_per_second": rate * REQUESTS_PER_CONNECTION,
        "count": count * REQUESTS_PER_CONNECTION,
        "elapsed": elapsed,
        "checked": len(paths),
        "moved": sum(path["path"] == "ring" for path in paths),
        **paths[-1],
    }


def serve_requests(listener: socket.socket, _order: Order, role: Role) -> Report:
    path: Report = {}
    while True:
        sock, _ = listener.accept()
        requests = 0
        while data := sock.recv(64):
            sock.sendall(data)
            requests += 1
        if not requests:
            sock.close()
            return path
        path = role.path_of(sock)
        sock.close()


def repeat_for(one: Callable[[], None], batch: int, order: Order) -> tuple[float, int, float]:
    """Repeat `one` for the warm-up, then for the timed seconds; returns rate per second, count, seconds."""
    for seconds in (order["warm"], order["seconds"]):
        count, start = 0, perf_counter()
        while (elapsed := perf_counter() - start) < seconds:
            for _ in repeat(None, batch):
                one()
            count += batch
    return count / elapsed, count, elapsed


# --- idle connections ---------------------------------------------------------------------------------------


def drive_idle(address: Address, order: Order, role: Role) -> Report:
    """Open connections, move them, then sit in a blocking `recv` on one of them while nothing happens.

    Stops at each stage, with both ends quiet, until the harness has read what it wants from /proc.
    """
    with connect(address) as first:  # loads code and starts threads, so that neither counts for the others
        settle(first, role)
        first.sendall(GO)
    role.pause("before")
    socks = []
    for _ in range(order["connections"]):
        sock = connect(address)
        sock.sendall(PULSE)
        receive_exactly(sock, 1)
        socks.append(sock)
    role.pause("connected")
    for sock in socks:
        settle(sock, role)
        sock.sendall(GO)
        receive_exactly(sock, 1)
    paths = [role.path_of(sock) for sock in socks]
    role.pause("moved")
    for sock in reversed(socks):  # sleeps in the first of these until the harness has the server send
        if receive_exactly(sock, 1) != PULSE:
            raise BenchError("an idle connection received what nobody sent")
    for sock in socks:
        sock.close()
    return {"moved": sum(path["path"] == "ring" for path in paths), "checked": len(paths), **paths[-1]}


def serve_idle(listener: socket.socket, order: Order, role: Role) -> Report:
    """Answer the client stage by stage, then sleep in `poll` on all connections until the harness says so."""
    first, _ = listener.accept()
    with first:
        answer_settle(first, role)
    socks = []
    for _ in range(order["connections"]):
        sock, _ = listener.accept()
        sock.sendall(receive_exactly(sock, 1))
        socks.append(sock)
    for sock in socks:
        answer_settle(sock, role)
        sock.sendall(GO)
    path = role.path_of(socks[-1])
    poller = select.poll()
    command = sys.stdin.fileno()
    poller.register(command, select.POLLIN)
    for sock in socks:
        poller.register(sock.fileno(), select.POLLIN)
    spurious = 0
    while command not in (ready := [fd for fd, _ in poller.poll()]):
        spurious += len(ready)
    sys.stdin.readline()
    for sock in socks:
        sock.sendall(PULSE)
    for sock in socks:
        if sock.recv(1):
            raise BenchError("an idle connection received what nobody sent")
        sock.close()
    return {"spurious_wakeups": spurious, **path}
