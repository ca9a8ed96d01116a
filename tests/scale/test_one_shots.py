"""A connection that ends before it could move: what it costs, and that nobody mistakes it for another one."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.counting import traced
from harness.pairs import inside, listening

import fastsock
from fastsock._native import libc_front

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = "write,fstat,newfstatat,getpeername,getsockname,getsockopt,setsockopt,fcntl,ioctl,?poll,ppoll,sched_yield"

PROGRAM = """
import os
if "PATCHED" in os.environ:
    import fastsock
    fastsock.patch()
import socket
listener = socket.create_server(("127.0.0.1", 0))
def one():
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    client.sendall(b"request")
    assert server.recv(100) == b"request"
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    client.close()
    server.close()
one()
os.write(2, b"BEGIN")
for _ in range(20):
    one()
os.write(2, b"END")
"""


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def connection(opened: contextlib.ExitStack) -> tuple[fastsock.socket, fastsock.socket]:
    """Both ends in this process, of which nobody has asked anything."""
    listener = opened.enter_context(listening())
    client = opened.enter_context(fastsock.socket())
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    return client, opened.enter_context(server)


def test_a_one_shot_makes_the_system_calls_of_plain_tcp(tmp_path: Path) -> None:
    """Which socket it is, and where its peer is, nobody needs to know of a connection that ends at once."""
    made = {}
    for path, variables in {"plain": {}, "fastsock": {"PATCHED": "1"}}.items():
        (tmp_path / path).mkdir()
        # (On one processor no wait polls: looks at the kernel's stream are a wait's, not the connection's.)
        _, (lines,) = traced(PROGRAM, CALLS, tmp_path / path, FASTSOCK_POLL_US="0", **variables)
        made[path] = Counter(line.split("(")[0].split()[-1] for line in lines)
    assert made["plain"]["getsockname"] > 0  # they are counted
    assert made["fastsock"] == made["plain"]


def test_a_descriptor_that_c_code_has_duplicated_is_known_by_its_socket(opened: contextlib.ExitStack) -> None:
    client, _ = connection(opened)
    number = LIBC.dup(client.fileno())
    try:
        known = libc_front.describe(number)
        assert known is not None
        assert known["side"] == inside(client)["side"]
    finally:
        os.close(number)


def test_a_new_connection_does_not_take_up_what_had_its_number_before(opened: contextlib.ExitStack) -> None:
    listener = opened.enter_context(listening())
    gone = fastsock.socket()
    gone.connect(listener.getsockname())
    number = gone.fileno()
    assert libc_front.describe(number)
    assert LIBC.close(number) == 0
    assert libc_front.describe(number) is None
    client = opened.enter_context(fastsock.socket())
    assert client.fileno() == number
    client.connect(listener.getsockname())
    assert len(libc_front.connections()) == 1
    gone.detach()
