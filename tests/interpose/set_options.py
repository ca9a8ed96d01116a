"""What an option does to the end of a connection that has it, whenever it is set and by whom. As JSON.

set_options.py OPTION SECONDS       within which a connection moves that can
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time

from fastsock import path_of

AT_ONCE = struct.pack("ii", 1, 0)
OPTIONS = {
    "SO_LINGER": (socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE),
    "SO_RCVTIMEO": (socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20_000)),
    "SO_SNDBUF": (socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000),
    "SO_RCVLOWAT": (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 100),
}
WHEN = ("before connecting", "by the listener", "before the first byte", "by a child", "on the way")
ROUNDS = 50


def exchange(near: socket.socket, far: socket.socket, rounds: int) -> None:
    for _ in range(rounds):
        for one, other in ((near, far), (far, near)):
            one.sendall(b"x" * 200)
            assert other.recv(200, socket.MSG_WAITALL) == b"x" * 200


def set_by_child(sock: socket.socket, option: tuple) -> None:
    if (child := os.fork()) == 0:
        sock.setsockopt(*option)
        os._exit(0)
    os.waitpid(child, 0)


def what_it_does(name: str, own: socket.socket, other: socket.socket) -> object:
    if name == "SO_LINGER":
        own.close()
        try:
            return other.recv(1).decode()
        except OSError as error:
            return error.errno
    if name == "SO_RCVTIMEO":
        started = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            own.recv(1)
        return time.monotonic() - started < 5
    if name == "SO_SNDBUF":
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 40_000_000:
                sent += own.send(bytes(10_000), socket.MSG_DONTWAIT)
        return sent < 40_000_000 and own.getsockopt(*OPTIONS[name][:2])
    other.sendall(bytes(10))
    early = select.select([own], [], [], 0.05)[0] == [own]
    other.sendall(bytes(90))
    return [early, select.select([own], [], [], 20)[0] == [own]]


def run(name: str, when: str) -> tuple[bool, object]:
    """If it was on the ring before, and what the option does."""
    option = OPTIONS[name]
    listener = socket.create_server(("127.0.0.1", 0))
    connecting = socket.socket()
    if when == "before connecting":
        connecting.setsockopt(*option)
    if when == "by the listener":
        listener.setsockopt(*option)
    connecting.connect(listener.getsockname())
    accepted = listener.accept()[0]
    own, other = (connecting, accepted) if when == "before connecting" else (accepted, connecting)
    if when == "before the first byte":
        own.setsockopt(*option)
    if when == "by a child":
        set_by_child(own, option)
    ends = time.monotonic() + float(sys.argv[2])
    exchange(connecting, accepted, ROUNDS)
    while path_of(own).reason not in ("both directions", "unsupported socket option") and time.monotonic() < ends:
        exchange(connecting, accepted, ROUNDS)
    moved = path_of(own).path == "ring"
    if when == "on the way":
        own.setsockopt(*option)
    return moved, what_it_does(name, own, other)


print(json.dumps({when: run(sys.argv[1], when) for when in WHEN}))
