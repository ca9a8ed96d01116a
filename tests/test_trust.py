"""Whom a connection meets: processes of this user and of root, and nobody else."""

import os
import signal
import socket
from collections.abc import Callable, Iterator

import pytest
from hostile import LATER_IN_3_12, hostile, violations
from pairs import KernelSocket, deadline, until

import fastsock
from fastsock import rendezvous
from fastsock._native import vi


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(40):
        yield


def test_name_held_by_somebody_else_leaves_kernel_tcp():
    with hostile() as peer, KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
        holder.bind(peer.name)
        holder.listen(1)
        peer.chat()
        assert fastsock.path_of(peer.victim) == fastsock.Path("tcp", "name held by somebody else")
        peer.chat()


NOBODY = 65534
"""Another user's id."""


def as_nobody(function: Callable[[], None]) -> int:
    """Starts `function` in a child of another user and returns its process id; only root may."""
    pid = os.fork()
    if pid == 0:
        try:
            vi.before_exit()  # the child has no part in this process's connections
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            function()
        finally:
            os._exit(0)
    return pid


@LATER_IN_3_12
def test_visitor_of_another_user_is_not_answered(caplog):
    """It is sent away, and whoever comes next is met. Where the tests may not become another user, every visitor
    counts as one."""
    with hostile() as peer:
        peer.chat()  # publishes
        if os.geteuid() == 0:

            def visit() -> None:
                with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
                    visitor.settimeout(5)
                    visitor.connect(peer.name)
                    os.write(entry, visitor.recv(10) or b"nothing")

            exit_, entry = os.pipe()
            pid = as_nobody(visit)
            os.close(entry)
            assert os.read(exit_, 10) == b"u"
            os.close(exit_)
            os.waitpid(pid, 0)
        peer.meet()
        peer.move()
        peer.post()
        assert peer.victim.recv(4) == b"ring"
        assert not violations(caplog)


def test_name_held_by_another_user_is_not_believed(monkeypatch):
    """Root is believed by everybody: where the tests are root, another user holds the name, else we are another."""
    with hostile(publishes=True) as peer, KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
        pid = None
        if os.geteuid() == 0:
            exit_, entry = os.pipe()

            def hold() -> None:
                holder.bind(peer.name)
                holder.listen(1)
                os.write(entry, b"!")
                signal.pause()

            pid = as_nobody(hold)
            assert os.read(exit_, 1) == b"!"
            os.close(exit_)
            os.close(entry)
        else:
            holder.bind(peer.name)
            holder.listen(1)
            monkeypatch.setattr(rendezvous.os, "geteuid", lambda: NOBODY)
        try:

            def decided() -> bool:
                peer.chat()
                return fastsock.path_of(peer.victim) == fastsock.Path("tcp", "peer belongs to another user")

            until(decided, "the victim sees whose name it is")
            peer.chat()
        finally:
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
