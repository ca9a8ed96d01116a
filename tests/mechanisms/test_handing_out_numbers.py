"""A socket's number is handed out at each step of the way to the ring, at both ends, and the connection goes on."""

import contextlib
import ctypes
import select
import socket
from collections.abc import Callable
from typing import Any

import pytest
from harness.pairs import KernelSocket, bind_beside, deadline, listening, make_pair, number_of, payload, read_exactly
from harness.steps import STEPS

import fastsock

ROUNDS = 100  # within which a connection has come to its last step, or never will


def polled(sock: socket.socket) -> socket.socket:
    sock.fileno()
    return sock


def raw(sock: socket.socket) -> socket.socket:
    return KernelSocket(sock.family, sock.type, sock.proto, sock.detach())


WAYS: dict[str, Callable[[Any], Any]] = {"fileno": polled, "dup": lambda sock: sock.dup(), "detach": raw}
"""How the number is handed out. Returns who has the connection then."""


class Side:
    """One end of a connection, handed out at a step. From then on it is readable exactly while something waits."""

    def __init__(self, sock: socket.socket, step: int, way: str) -> None:
        self.sock, self.step, self.way = sock, step, way
        self.handed = False
        sock.settimeout(20)

    def look(self, now: bool = False) -> None:
        if self.handed:
            return
        path = fastsock.path_of(self.sock)
        if now or path not in STEPS or STEPS.index(path) >= self.step:
            self.handed = True
            self.sock = WAYS[self.way](self.sock)

    def is_readable(self) -> bool:
        return bool(select.select([self.sock], [], [], 0)[0])


def exchange(near: Side, far: Side, number: int) -> None:
    for sender, receiver in ((near, far), (far, near)):
        near.look()
        far.look()
        data = payload(100 + number, number)
        if receiver.handed:
            assert not receiver.is_readable()
        sender.sock.sendall(data)
        if receiver.handed:
            assert select.select([receiver.sock], [], [], 20)[0]
        assert read_exactly(receiver.sock, len(data)) == data


@pytest.mark.parametrize("kind", ["kernel", "ring", "midstream"])
@pytest.mark.parametrize("below", [True, False], ids=["below", "above"])
@pytest.mark.parametrize("way", WAYS)
def test_handed_out_at_every_step_at_both_ends(kind: str, below: bool, way: str) -> None:
    cls = KernelSocket if kind == "kernel" else fastsock.socket
    settings: dict[str, Any] = {"move_after": 6 if kind == "midstream" else 0, "move_polled": True}
    with deadline(120), fastsock.configure(**settings):
        for at_near in range(len(STEPS)):
            for at_far in range(len(STEPS)):
                with contextlib.ExitStack() as stack:
                    listener = stack.enter_context(listening(cls is not KernelSocket))
                    sock = stack.enter_context(cls())
                    bind_beside(sock, listener.getsockname()[1], below)
                    sock.connect(listener.getsockname())
                    accepted = stack.enter_context(listener.accept()[0])
                    near, far = Side(sock, at_near, way), Side(accepted, at_far, way)
                    for number in range(ROUNDS):
                        exchange(near, far, number)
                        if near.handed and far.handed:
                            break
                    near.look(now=True)
                    far.look(now=True)
                    stack.callback(near.sock.close)
                    stack.callback(far.sock.close)
                    for number in range(10):
                        exchange(near, far, number)


def test_the_path_of_a_number_that_c_code_has_given_to_another_file() -> None:
    """It is not the path of the connection that had the number before."""

    class Numbered:
        def fileno(self) -> int:
            return number

    libc = ctypes.CDLL(None, use_errno=True)
    with make_pair("ring") as pair, KernelSocket() as other:
        number = number_of(pair.near)
        assert fastsock.path_of(Numbered()).path == "ring"
        assert libc.dup2(other.fileno(), number) == number
        assert fastsock.path_of(Numbered()) == fastsock.Path("tcp", "not a fastsock socket")
