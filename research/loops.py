"""Helpers of the loops that the role processes run for the papers: see `bench.loops.connection_loop`.

The standard library only at import, as in everything a role loads: a kernel role is to be a plain program.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter
from typing import Any

from bench.warmup import Address, connect, receive_exactly
from bench.worker import Report, Role

BEFORE = 40  # calls before anything is timed, at least: a connection moves within the first ones


def calls(call: Callable[[], Any], order: dict[str, Any], batch: int = 20) -> tuple[float, int]:
    """Seconds that one call takes, and how many were timed."""
    for _ in repeat(None, BEFORE):
        call()
    for seconds in (order["warm"], order["seconds"]):
        count, start = 0, perf_counter()
        while (elapsed := perf_counter() - start) < seconds:
            for _ in repeat(None, batch):
                call()
            count += batch
    return elapsed / count, count


@contextlib.contextmanager
def moving(role: Role) -> Iterator[Report]:
    """Says where the connections of the block were, by how many of them moved."""
    report: Report = {}
    before = role.connections_moved()
    yield report
    moved = role.connections_moved() - before
    path = "kernel" if role.settings is None else "ring" if moved else "tcp"
    report.update(path=path, reason=f"{moved} connections moved")
    if role.settings is not None:
        report["connections_moved"] = moved


def offer(listener: socket.socket, port: int) -> None:
    """Tells the client the port of a server of somebody else's making, and waits until the client is done with it."""
    with listener.accept()[0] as sock:
        sock.sendall(port.to_bytes(2, "big"))
        sock.recv(1)


@contextlib.contextmanager
def offered(address: Address) -> Iterator[int]:
    with connect(address) as sock:
        yield int.from_bytes(receive_exactly(sock, 2), "big")
