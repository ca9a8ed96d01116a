"""What this end of a connection is told of the other one's end: ways to end x states x who waits, a line for each.

ways_to_end.py [CELL ...]        a cell is way/state/wait; test_ways_to_end.py compares kernel TCP and fastsock
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Kick = Callable[[], None]
Ends = tuple[Any, Any]

ROUNDS = 40
WAIT = 1.5
"""Seconds after which nothing comes any more."""
LATE = 1.0
"""Seconds within which an end is told."""


def destroy(here: Any, there: Any) -> None:
    """The kernel ends a socket of this host, as `ss -K` has it (sock_diag(7), SOCK_DESTROY)."""
    ports = struct.pack(">HH", here[1], there[1])
    ends = b"".join(socket.inet_aton(end[0]).ljust(16, b"\0") for end in (here, there))
    any_state = any_cookie = 0xFFFFFFFF
    identity = ports + ends + struct.pack("=III", 0, any_cookie, any_cookie)
    body = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, any_state) + identity
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:
        diag.send(struct.pack("=IHHII", 16 + len(body), 21, 1 | 4, 1, 0) + body)
        error = -struct.unpack_from("=i", diag.recv(4096), 16)[0]
    if error:
        raise OSError(error, os.strerror(error))


def tried(function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def named(events: int) -> str:
    names = ("IN", "OUT", "PRI", "ERR", "HUP", "RDHUP")
    return "|".join(name for name in names if events & getattr(select, f"EPOLL{name}")) or "nothing"


def level(sock: socket.socket) -> str:
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDHUP)
    return named(dict(poll.poll(0)).get(sock.fileno(), 0))


# ---- states ----------------------------------------------------------------------------------------------------------


def nothing(sock: socket.socket) -> None:
    pass


def send(sock: socket.socket) -> None:
    sock.sendall(b"u" * 1000)


def shut(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def fill(sock: socket.socket) -> None:
    sock.setblocking(False)
    refused = 0
    while refused < 4:  # (there is more room after a while)
        refused = refused + 1 if tried(sock.send, b"f" * 65536) == "EAGAIN" else 0
        time.sleep(0.02 * (refused > 0))
    sock.setblocking(True)


STATES = {  # what the other end has done, and then this one
    "idle": (nothing, nothing),
    "unread_here": (send, nothing),
    "unread_there": (nothing, send),
    "unread_both": (send, send),
    "full_out": (nothing, fill),
    "both_full": (fill, fill),
    "half_there": (shut, nothing),
    "half_here": (nothing, shut),
    "half_there_unread": (shut, send),
    "half_there_full": (shut, fill),
    "half_here_unread": (send, shut),
}

# ---- ways to end -----------------------------------------------------------------------------------------------------


def reset(sock: socket.socket, ends: Ends) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


ENDS: dict[str, Callable[[socket.socket, Ends], Any]] = {
    "close": lambda sock, ends: sock.close(),
    "exit": lambda sock, ends: os._exit(0),
    "kill": lambda sock, ends: os.kill(os.getpid(), signal.SIGKILL),
    "reset": reset,
    "aborted_here": lambda sock, ends: destroy(*reversed(ends)),
    "aborted_there": lambda sock, ends: destroy(*ends),
    "exec": lambda sock, ends: os.execv("/bin/sleep", ["sleep", "10"]),
}


def other_end(port: int, way: str, state: str, ready: int, go: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            sock.sendall(b"x")
            sock.recv(1)
        ends = sock.getsockname(), sock.getpeername()
        STATES[state][0](sock)
        os.write(ready, b"r")
        os.read(go, 1)
        ENDS[way](sock, ends)
        os.write(ready, b"e")
        os.read(go, 1)


# ---- who waits -------------------------------------------------------------------------------------------------------


def polls(sock: socket.socket, kick: Kick, events: int) -> str:
    poll = select.poll()
    poll.register(sock, events)
    kick()
    return named(dict(poll.poll(WAIT * 1000)).get(sock.fileno(), 0))


def epolls(sock: socket.socket, kick: Kick, events: int) -> str:
    with select.epoll() as instance:
        instance.register(sock, events)
        if events & select.EPOLLET:
            instance.poll(0)
        kick()
        return named(dict(instance.poll(WAIT)).get(sock.fileno(), 0))


def selects(sock: socket.socket, kick: Kick, which: str) -> str:
    sets = [[sock] if name in which else [] for name in "rw"]
    kick()
    ready = select.select(*sets, [], WAIT)
    return "".join(name for name, found in zip("rw", ready, strict=False) if found) or "nothing"


def waits_in(sock: socket.socket, kick: Kick, option: int, call: Callable[[], Any]) -> Any:
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(WAIT), int(WAIT % 1 * 1e6)))
    kick()
    return tried(call)


WAITS: dict[str, Callable[[socket.socket, Kick], Any]] = {
    "recv": lambda s, kick: waits_in(s, kick, socket.SO_RCVTIMEO, lambda: len(s.recv(10))),
    "send": lambda s, kick: waits_in(s, kick, socket.SO_SNDTIMEO, lambda: s.send(b"z" * 10)),
    "poll_in": lambda s, kick: polls(s, kick, select.POLLIN),
    "poll_out": lambda s, kick: polls(s, kick, select.POLLOUT),
    "select_in": lambda s, kick: selects(s, kick, "r"),
    "select_out": lambda s, kick: selects(s, kick, "w"),
    "epoll_in": lambda s, kick: epolls(s, kick, select.EPOLLIN),
    "epoll_out": lambda s, kick: epolls(s, kick, select.EPOLLOUT),
    "epoll_ends": lambda s, kick: epolls(s, kick, 0),
    "edge": lambda s, kick: epolls(s, kick, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET),
    "shot": lambda s, kick: epolls(s, kick, select.EPOLLRDHUP | select.EPOLLONESHOT),
}


def afterwards(sock: socket.socket) -> list[str]:
    told = [level(sock)]
    sock.setblocking(False)
    got, part = 0, tried(sock.recv, 1 << 20)
    while isinstance(part, bytes) and part:
        got += len(part)
        part = tried(sock.recv, 1 << 20)
    told.append(f"recv {'bytes, ' if got else ''}{part or 'end'} {tried(sock.recv, 1) or 'end'}, {level(sock)}")
    told.append(f"SO_ERROR {errno.errorcode.get(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)}")
    first = tried(sock.send, b"z")
    time.sleep(0.01)
    told.append(f"send {first} {tried(sock.send, b'z')}, {level(sock)}")
    return told


def cell(way: str, state: str, wait: str) -> str:
    ready, of_child = os.pipe()
    of_parent, go = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if not pid:
            try:
                port = listener.getsockname()[1]
                listener.close()
                os.close(ready)
                os.close(go)
                other_end(port, way, state, of_child, of_parent)
            finally:
                os._exit(1)
        sock, _ = listener.accept()
    os.close(of_child)
    os.close(of_parent)
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            sock.recv(1)
            sock.sendall(b"y")
        os.read(ready, 1)
        STATES[state][1](sock)
        time.sleep(0.06)  # (an acknowledgement that is delayed is an edge, too)
        ends_at = threading.Timer(0.04, os.write, (go, b"g"))
        began = time.monotonic()
        first = WAITS[wait](sock, ends_at.start)
        late = " late" if time.monotonic() - began > LATE and first not in ("nothing", "EAGAIN") else ""
        ends_at.join()
        os.read(ready, 1)  # it has ended
        time.sleep(0.05)
        told = [f"{first}{late}", *afterwards(sock)]
    os.close(go)
    os.close(ready)
    os.kill(pid, signal.SIGKILL)  # (what an exec has started goes on)
    os.waitpid(pid, 0)
    return "; ".join(told)


if __name__ == "__main__":
    for words in sys.argv[1:]:
        print(words, cell(*words.split("/")), sep=": ", flush=True)
