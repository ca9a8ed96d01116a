"""Message libraries behind the few calls of a socket that the loops of `bench.data` make: pyzmq and iceoryx2.

An empty message is the end of the stream. The connection that a sample begins with tells the other end where to meet.
"""

from __future__ import annotations

import ctypes
import os
import socket
import tempfile
from collections.abc import Callable
from typing import Any

from bench import data
from bench.warmup import Address, Order, connect, receive_exactly
from bench.worker import Report, Role

END = b"\0"  # iceoryx2 has no message of no bytes
BUFFERED = 64  # messages that may wait, as many as iceoryx2's publisher may have lent out


class Zmq:
    """A pair of PAIR sockets over a unix socket."""

    def __init__(self, name: str, server: bool, size: int) -> None:
        import zmq

        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        address = f"ipc://{tempfile.gettempdir()}/{name}"
        (self.socket.bind if server else self.socket.connect)(address)
        self.send = self.sendall = self.socket.send

    def recv(self, _: int) -> Any:
        return self.socket.recv()

    def setblocking(self, _: bool) -> None: ...

    def shutdown(self, _: int) -> None:
        self.send(b"")

    def close(self) -> None:
        self.socket.close(linger=1000)
        self.context.term()


class Iceoryx2:
    """A service for each direction, asked again and again until there is a message: this is what it is fastest at. A
    sender writes each message into the lent memory; a receiver reads it there, without a copy."""

    def __init__(self, name: str, server: bool, size: int) -> None:
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
        node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)

        def service(way: str) -> Any:
            builder = node.service_builder(iceoryx2.ServiceName.new(f"{name}/{way}"))
            typed = builder.publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
            return typed.enable_safe_overflow(False).subscriber_max_buffer_size(BUFFERED).open_or_create()

        there, back = service("there"), service("back")
        ours, theirs = (back, there) if server else (there, back)
        self.publisher = ours.publisher_builder().initial_max_slice_len(size).create()
        self.subscriber = theirs.subscriber_builder().create()
        self.node, self.sample = node, None
        self.sendall = self.send

    def send(self, message: bytes) -> None:
        lent = self.publisher.loan_slice_uninit(len(message))
        ctypes.memmove(lent.payload_ptr, bytes(message), len(message))
        lent.assume_init().send()

    def recv(self, _: int) -> Any:
        receive = self.subscriber.receive
        while (sample := receive()) is None:
            pass
        self.sample = sample  # what the view looks at
        view = sample.payload().as_memory_view()
        return b"" if view == END else view

    def setblocking(self, _: bool) -> None: ...

    def shutdown(self, _: int) -> None:
        self.send(END)

    def close(self) -> None:
        self.sample = None


def meet(kind: Callable[..., Any], sock: socket.socket, server: bool, size: int) -> Any:
    """A channel to the process at the other end of the connection, which is ready as well."""
    if not server:
        sock.sendall(os.getpid().to_bytes(8, "big"))
    client = int.from_bytes(receive_exactly(sock, 8), "big") if server else os.getpid()
    port = sock.getsockname()[1] if server else sock.getpeername()[1]
    channel = kind(f"fastsock-rivals-{client}-{port}", server, size)
    sock.sendall(b"!")
    receive_exactly(sock, 1)
    return channel


def drive(kind: Callable[..., Any], address: Address, order: Order, role: Role) -> Report:
    with connect(address) as sock:
        channel = meet(kind, sock, False, order["size"])
        if order["what"] == "pingpong":
            report = data.drive_pingpong(channel, order, role)
        else:
            report = data.drive_stream(channel, order, role)
            channel.shutdown(socket.SHUT_WR)
        channel.close()
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
    return report


def serve(kind: Callable[..., Any], listener: socket.socket, order: Order, role: Role) -> Report:
    sock, _ = listener.accept()
    with sock:
        channel = meet(kind, sock, True, order["size"])
        (data.serve_pingpong if order["what"] == "pingpong" else data.serve_stream)(channel, order)
        channel.shutdown(socket.SHUT_WR)
        sock.recv(1)  # the other end has read it all
        channel.close()
    return {"path": "kernel", "reason": "another library"}


def drive_zmq(address: Address, order: Order, role: Role) -> Report:
    return drive(Zmq, address, order, role)


def serve_zmq(listener: socket.socket, order: Order, role: Role) -> Report:
    return serve(Zmq, listener, order, role)


def drive_iceoryx2(address: Address, order: Order, role: Role) -> Report:
    return drive(Iceoryx2, address, order, role)


def serve_iceoryx2(listener: socket.socket, order: Order, role: Role) -> Report:
    return serve(Iceoryx2, listener, order, role)
