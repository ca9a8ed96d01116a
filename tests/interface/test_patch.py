"""`patch()`: sockets made from now on are served at the C library's calls, whoever makes and uses them; nothing of
Python's is replaced but methods of the event loops; and how it is undone."""

import asyncio
import logging
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness.hostile_peer import events
from harness.pairs import SECONDS, deadline, listening, move, path_of, until
from harness.processes import ended

import fastsock
from fastsock import config

MODULES = (socket, os, selectors, subprocess)
EARLY_SOCKET, EARLY_RECV, EARLY_SEND = socket.socket, socket.socket.recv, socket.socket.send


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    before = config.active()
    with deadline(50):
        yield
    fastsock.unpatch()
    config.use(before)


@pytest.fixture
def patched() -> None:
    fastsock.patch(move_after=0)


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=SECONDS)
        return near, listener.accept()[0]


@pytest.fixture
def ring(patched) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets of the stdlib's class, on the ring."""
    near, far = pair()
    with near, far:
        move(near, far)
        near.settimeout(None)
        yield near, far


def test_the_modules_stay_as_they_are_and_the_loops_get_methods(caplog):
    loop = asyncio.selector_events.BaseSelectorEventLoop
    assert not fastsock.is_patched()
    before, methods = [dict(vars(module)) for module in MODULES], dict(vars(loop))
    with caplog.at_level(logging.INFO, "fastsock"):
        fastsock.patch()
        fastsock.patch()
    assert fastsock.is_patched()
    assert len(events(caplog, "fastsock.patched")) == 1
    patched = {name: value for name, value in vars(loop).items() if methods.get(name) is not value}
    assert patched
    if sys.version_info < (3, 12):  # where os.fork warns of threads it is wrapped
        assert [dict(vars(module)) for module in MODULES] == before
    for _ in range(2):
        fastsock.unpatch()
        assert not fastsock.is_patched()
        assert dict(vars(loop)) == methods
        assert [dict(vars(module)) for module in MODULES] == before


def test_sockets_older_than_it_stay_on_the_kernel():
    near, far = pair()
    fastsock.patch(move_after=0)
    with near, far:
        for _ in range(50):
            near.sendall(b"x")
            far.sendall(far.recv(1))
            assert near.recv(1) == b"x"
        assert {fastsock.path_of(sock).reason for sock in (near, far)} == {"not a fastsock socket"}


def test_a_listener_older_than_it_accepts_connections_that_move():
    with listening(False) as early:
        fastsock.patch(move_after=0)
        with socket.create_connection(early.getsockname()) as near, early.accept()[0] as far:
            move(near, far)


def test_what_was_taken_from_the_class_before_is_served_too(patched):
    with EARLY_SOCKET() as listener, EARLY_SOCKET() as near:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:

            def on_ring() -> bool:
                EARLY_SEND(near, b"question")
                assert EARLY_RECV(far, 100) == b"question"
                EARLY_SEND(far, b"answer")
                assert EARLY_RECV(near, 100) == b"answer"
                return path_of(near) == path_of(far) == "ring"

            until(on_ring, "it moves")


def test_sockets_go_on_after_unpatch_and_new_ones_are_plain(ring):
    near, far = ring
    fastsock.unpatch()
    near.sendall(b"still here")
    assert far.recv(10) == b"still here"
    assert path_of(near) == path_of(far) == "ring"
    for sock in pair():
        with sock:
            assert fastsock.path_of(sock).reason == "not a fastsock socket"


SERVED_BY_THEMSELVES = """
import socket, time, fastsock
from fastsock import socket as ours
def pair(listens, connects):
    listener = listens()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    near = connects()
    near.connect(listener.getsockname())
    return near, listener.accept()[0]
def moves(near, far):
    ends = time.monotonic() + (20 if type(near) is type(far) is ours else 0.5)
    while fastsock.path_of(near).path == "tcp" and time.monotonic() < ends:
        near.sendall(b"x")
        far.sendall(far.recv(1))
        near.recv(1)
    return fastsock.path_of(near).path, fastsock.path_of(far).path, type(far) is ours
with fastsock.configure(move_after=0):
    plain = pair(socket.socket, socket.socket)
    print(moves(*pair(ours, ours)), moves(*pair(socket.socket, ours)), moves(*pair(ours, socket.socket)))
    print(moves(*plain), fastsock.path_of(plain[0]).reason)
"""


def test_without_it_the_sockets_of_our_class_are_served_and_no_others():
    said = ended([sys.executable, "-c", SERVED_BY_THEMSELVES]).stdout.splitlines()
    assert said == [
        "('ring', 'ring', True) ('tcp', 'tcp', False) ('tcp', 'tcp', True)",
        "('tcp', 'tcp', False) not a fastsock socket",
    ]


# ---- sockets


def test_the_modules_functions(ring):
    near, far = ring
    with socket.fromfd(near.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy_of_near:
        copy_of_near.sendall(b"by the copy")
        assert far.recv(11) == b"by the copy"
        assert path_of(copy_of_near) == "ring"
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, listener.getsockname()[1])) as one, listener.accept()[0] as other:
                move(one, other)


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_sockets_that_are_no_tcp(patched, family):
    if family == socket.AF_UNIX:
        near, far = socket.socketpair(type=socket.SOCK_SEQPACKET)
    else:
        near, far = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
        far.bind(("127.0.0.1", 0))
        near.connect(far.getsockname())
    with near, far:
        near.sendall(b"other")
        assert far.recv(10) == b"other"
        assert fastsock.path_of(near).reason == "not a fastsock socket"


# ---- forks

POLLS_AFTER_A_FORK = """
import os, select, socket, threading, time, fastsock
fastsock.patch(move_after=0)
epoll = select.epoll()
listener = socket.create_server(("127.0.0.1", 0))
pairs = [(socket.create_connection(listener.getsockname()), listener.accept()[0]) for _ in range(3)]
for near, far in pairs:
    ends = time.monotonic() + 20
    while fastsock.path_of(near).reason != "both directions" or fastsock.path_of(far).reason != "both directions":
        assert time.monotonic() < ends
        near.sendall(b"x"); far.recv(1); far.sendall(b"x"); near.recv(1)
for near, far in pairs[:2]:
    epoll.register(near, select.EPOLLIN)
def look():
    poll = select.poll()
    poll.register(pairs[2][0], select.POLLIN)
    poll.poll(300)
    time.sleep(1)
def asleep(what):
    near, far = pairs[what]
    poll = select.poll()
    poll.register(near, select.POLLIN)
    assert poll.poll(50) == []
    far.sendall(b"y")
    assert poll.poll(20_000)
    assert near.recv(9) == b"y"
epoll.poll(0.05)
asleep(0)
for _ in range(2):
    threading.Thread(target=look).start()  # their pollers are not the child's
time.sleep(0.2)
child = os.fork()
asleep(1 if child else 0)
if not child:
    for pair in pairs:
        for sock in pair: sock.close()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_polls_what_its_parent_has_polled_and_in_an_epoll_instance():
    assert ended([sys.executable, "-c", POLLS_AFTER_A_FORK]).stdout == "7\n"
