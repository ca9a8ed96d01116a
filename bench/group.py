"""One sender, N receivers in a process each: by N TCP connections, by IP multicast on the loopback interface, or by a
group of fastsock.

    python -m bench.group tcp|multicast|group N SIZE SECONDS

prints seconds to inject a message, and until all have replied. Each receiver answers a whole message with an empty
reply (one byte), as in GRIM's benchmark: by its connection, by a datagram, or by a second group that the sender alone
reads. The first two are ordinary programs on the standard library; they do not know about fastsock.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

HOST, GROUP = "127.0.0.1", "239.192.42.1"  # of the range for one organisation (RFC 2365)
BEFORE = 30
REPLY = b"."
PATIENCE = 5.0  # seconds for a reply: a datagram may be lost


Sender = tuple[Callable[[], None], Callable[[], None], Callable[[], None]]  # inject, take all replies, end


# --- by N connections -----------------------------------------------------------------------------------------


def receive_tcp(control: socket.socket, size: int) -> None:
    view = memoryview(bytearray(size))
    while True:
        got = 0
        while got < size:
            part = control.recv_into(view[got:])
            if not part:
                return
            got += part
        control.sendall(REPLY)


def send_tcp(stack: ExitStack, socks: list[socket.socket], size: int) -> Sender:
    message = b"m" * size

    def inject() -> None:
        for sock in socks:
            sock.sendall(message)

    def replies() -> None:
        for sock in socks:
            if sock.recv(1) != REPLY:
                raise ConnectionError("a receiver has gone")

    return inject, replies, lambda: None


# --- by what all receivers join: its number comes by the connections, which are idle then ----------------------


def receive_multicast(control: socket.socket, size: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((GROUP, int.from_bytes(control.recv(2), "big")))
        member = struct.pack("4s4s", socket.inet_aton(GROUP), socket.inet_aton(HOST))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        control.sendall(REPLY)
        while True:
            message, sender = sock.recvfrom(65536)
            if not message:
                return
            sock.sendto(REPLY, sender)


def send_multicast(stack: ExitStack, socks: list[socket.socket], size: int) -> Sender:
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.bind((HOST, 0))
    sock.settimeout(PATIENCE)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
    group = GROUP, sock.getsockname()[1]
    gather(socks, group[1])
    message = b"m" * size

    def inject() -> None:
        sock.sendto(message, group)

    def replies() -> None:
        for _ in socks:
            sock.recv(1)

    return inject, replies, lambda: sock.sendto(b"", group) and None


def receive_group(control: socket.socket, size: int) -> None:
    from fastsock import Group

    name = group_name(int.from_bytes(control.recv(2), "big"))
    with Group(name) as group, Group(f"{name} replies", slow="block", reads=False) as back:
        control.sendall(REPLY)
        while len(group.receive()):
            back.send(REPLY)


def send_group(stack: ExitStack, socks: list[socket.socket], size: int) -> Sender:
    from fastsock import Group

    number = socks[0].getsockname()[1]
    group = stack.enter_context(Group(group_name(number), reads=False))
    back = stack.enter_context(Group(f"{group.name} replies", slow="block"))
    gather(socks, number)
    message = b"m" * size

    def replies() -> None:
        for _ in socks:
            back.receive(PATIENCE)

    return lambda: group.send(message), replies, lambda: group.send(b"")


def group_name(number: int) -> str:
    return f"bench {number}"


def gather(socks: list[socket.socket], number: int) -> None:
    """Tells the receivers what to join, and waits until they have."""
    for control in socks:
        control.sendall(number.to_bytes(2, "big"))
    for control in socks:
        control.recv(1)


KINDS = {
    "tcp": (send_tcp, receive_tcp),
    "multicast": (send_multicast, receive_multicast),
    "group": (send_group, receive_group),
}


def measure(kind: str, count: int, size: int, seconds: float) -> dict[str, float]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0), backlog=64))
        words = [sys.executable, "-m", "bench.group", kind, str(count), str(size), str(seconds)]
        port = str(listener.getsockname()[1])
        children = [stack.enter_context(subprocess.Popen([*words, "--port", port])) for _ in range(count)]
        socks = [stack.enter_context(listener.accept()[0]) for _ in range(count)]
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        inject, replies, end = KINDS[kind][0](stack, socks, size)
        injections, wholes = [], []
        until = 0.0
        while len(wholes) < BEFORE * 2 or time.perf_counter() < until:
            start = time.perf_counter()
            inject()
            middle = time.perf_counter()
            replies()
            wholes.append(time.perf_counter() - start)
            injections.append(middle - start)
            if len(wholes) == BEFORE:
                until = time.perf_counter() + seconds
        end()
        for sock in socks:
            sock.close()
        if any(child.wait(10) for child in children):
            raise ConnectionError("a receiver has failed")
    return {"injection": median(injections[BEFORE:]), "replies": median(wholes[BEFORE:])}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.group", description=__doc__.partition("\n\n")[0])
    parser.add_argument("kind", choices=KINDS)
    for name, convert in (("count", int), ("size", int), ("seconds", float)):
        parser.add_argument(name, type=convert)
    parser.add_argument("--port", type=int, help="of the sender: this is a receiver")
    options = parser.parse_args()
    if options.port:
        with socket.create_connection((HOST, options.port)) as control:
            control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            KINDS[options.kind][1](control, options.size)
    else:
        print(json.dumps(measure(options.kind, options.count, options.size, options.seconds)))


if __name__ == "__main__":
    main()
