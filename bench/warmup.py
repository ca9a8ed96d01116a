"""What both ends of every work begin with: a connection that has arrived where it is meant to be.

The standard library only, as in everything a role loads: a kernel role is to be a plain program.
"""

from __future__ import annotations

import socket
from time import monotonic
from typing import Any

from bench.worker import BenchError, Role

Order = dict[str, Any]  # what the client is told by the harness and tells the server
Address = tuple[str, int] | list[Any] | str  # loopback TCP, also as JSON has it, or an abstract unix name

SETTLE_ROUNDS = 64  # round trips before anything is timed, on every path
MOVED_ROUNDS = 16  # round trips after both ends said ring: the other direction may still have to follow
SETTLE_SECONDS = 5.0  # after which a connection that should have moved to the ring counts as not moved

ON_RING, ON_KERNEL, ASK, GO = b"r", b"k", b"?", b"!"


def connect(address: Address) -> socket.socket:
    """A new connection to a loopback TCP address or to an abstract unix name, as a plain program makes it."""
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
    else:
        sock = socket.socket(socket.AF_INET)
        sock.connect(tuple(address))
    return sock


def set_nodelay(sock: socket.socket) -> None:
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def set_buffers(sock: socket.socket, size: int) -> None:
    """Fixes both socket buffers, which the kernel then no longer tunes."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, size)


def settle(sock: socket.socket, role: Role) -> None:
    """Drive traffic both ways until both ends are on the ring, where that is expected.

    Raises BenchError after `SETTLE_SECONDS` on the kernel.
    """
    deadline = monotonic() + SETTLE_SECONDS
    rounds, moved, peer = 0, role.expect != "ring", b""
    while rounds < SETTLE_ROUNDS or not moved:
        if monotonic() > deadline:
            raise BenchError(f"not on the ring: {role.path_of(sock)}, the server said {peer!r}")
        sock.sendall(ASK)
        peer = receive_exactly(sock, 1)
        rounds += 1
        if not moved and peer == ON_RING and role.path_of(sock)["path"] == "ring":
            moved, rounds = True, min(rounds, SETTLE_ROUNDS - MOVED_ROUNDS)


def answer_settle(sock: socket.socket, role: Role) -> bool:
    """The server's part of `settle`; false when the client went away."""
    while (byte := sock.recv(1)) == ASK:
        sock.sendall(ON_RING if role.path_of(sock)["path"] == "ring" else ON_KERNEL)
    return byte == GO


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise BenchError(f"the peer closed after {len(data)} of {size} bytes")
        data += piece
    return data
