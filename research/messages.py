"""Messages that keep their boundaries: ping-pong and stream on a `fastsock.Channel`, and a ping-pong of UDP datagrams.

An order says `lent` where the sender borrows the message's memory instead of copying into it, and writes nothing there.
The receiver uses each message in place.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

from bench.data import DONE
from bench.warmup import Address, Order, connect
from bench.worker import BenchError, Report, Role
from research.loops import calls, offered

if TYPE_CHECKING:
    from fastsock import Channel

DATAGRAM = 65507  # the longest of UDP


def message_pingpong(size: Any, lent: bool = False) -> dict[str, Any]:
    return {"loop": "research.messages:pingpong", "size": size, "lent": lent}


def message_stream(size: Any, lent: bool = False) -> dict[str, Any]:
    block = max(32, min(4096, (8 << 20) // size))
    return {"loop": "research.messages:stream", "size": size, "lent": lent, "block": block}


def datagrams(size: Any) -> dict[str, Any]:
    return {"loop": "research.messages:datagrams", "size": min(size, DATAGRAM)}


# --- on a channel ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def channel(sock: socket.socket, report: Report) -> Iterator[Channel]:
    """The report says whether the messages went through shared memory."""
    from fastsock import Channel

    with Channel(sock) as made:
        yield made
        report["path"] = "ring" if made.shared else "tcp"
        report["reason"] = "the ends of a channel have memory in common, or have not"


def sends(channel: Channel, order: Order) -> Callable[[Any], None]:
    """What sends a message: a copy of the given bytes, or as many that are lent."""

    def lend(data: Any) -> None:
        with channel.lend(len(data)):
            pass

    return lend if order["lent"] else channel.send


def drive_pingpong(address: Address, order: Order, role: Role) -> Report:
    message, report = b"m" * order["size"], Report()
    with channel(connect(address), report) as end:
        send, receive = sends(end, order), end.receive

        def call() -> None:
            send(message)
            with receive() as answer:
                if len(answer) != len(message):
                    raise BenchError("the echo is not as long as what was sent")

        elapsed, count = calls(call, order)
        send(message)
        if bytes(receive()) != message and not order["lent"]:
            raise BenchError("the echo is not what was sent")
    return {"half_round_trip": elapsed / 2, "count": count, **report}


def serve_pingpong(listener: socket.socket, order: Order, role: Role) -> Report:
    report = Report()
    with channel(listener.accept()[0], report) as end:
        send = sends(end, order)
        for message in end:
            with message:
                send(message)
    return report


def drive_stream(address: Address, order: Order, role: Role) -> Report:
    """Rapid sends, then an acknowledgement, block after block, as `bench.data.drive_stream` does on a socket."""
    message, block, report = b"m" * order["size"], order["block"], Report()
    with channel(connect(address), report) as end:
        send, receive = sends(end, order), end.receive

        def call() -> None:
            for _ in repeat(None, block):
                send(message)
            if bytes(receive()) != DONE:
                raise BenchError("the receiver did not acknowledge")

        elapsed, count = calls(call, order, batch=1)
    return {"bytes_per_second": block * len(message) / elapsed, "count": count * block, **report}


def serve_stream(listener: socket.socket, order: Order, role: Role) -> Report:
    size, block, report = order["size"], order["block"], Report()
    with channel(listener.accept()[0], report) as end, contextlib.suppress(EOFError):
        receive = end.receive
        while True:
            for _ in repeat(None, block):
                with receive() as message:
                    if len(message) != size:
                        raise BenchError("a message is not as long as what was sent")
            end.send(DONE)
    return report


# --- datagrams of the kernel's ----------------------------------------------------------------------------------


def drive_datagrams(address: Address, order: Order, role: Role) -> Report:
    message = b"m" * order["size"]
    with offered(address) as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        send, recv = sock.send, sock.recv

        def call() -> None:
            send(message)
            if recv(DATAGRAM) != message:
                raise BenchError("the echo is not what was sent")

        elapsed, count = calls(call, order)
        send(b"")
        path = role.path_of(sock)
    return {"half_round_trip": elapsed / 2, "count": count, **path}


def serve_datagrams(listener: socket.socket, order: Order, role: Role) -> Report:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, listener.accept()[0] as control:
        sock.bind(("127.0.0.1", 0))
        control.sendall(sock.getsockname()[1].to_bytes(2, "big"))
        message, client = sock.recvfrom(DATAGRAM)
        sock.connect(client)
        while message:
            sock.send(message)
            message = sock.recv(DATAGRAM)
        return role.path_of(sock)
