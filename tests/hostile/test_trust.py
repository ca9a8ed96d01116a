"""Whom a connection meets: processes of this user and of root, and nobody else."""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct

import pytest
from harness.hostile_peer import (
    HELLO,
    MAGIC,
    NOBODY,
    VERSION,
    Peer,
    as_nobody,
    file_of,
    forked_child,
    hostile,
    violations,
)
from harness.pairs import SECONDS, KernelSocket, listening, until

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

TRUSTS = ["user", "any", f"user,{NOBODY}", "user,50001"]
"""The last one names somebody else. A user who is trusted may hold a name, too, or come to one, for the connection of
somebody else."""


def test_name_held_by_somebody_else_leaves_kernel_tcp():
    with hostile() as peer, KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
        holder.bind(peer.name)
        holder.listen(1)
        peer.chat()
        assert fastsock.path_of(peer.victim) == fastsock.Path("tcp", "name taken by another process")
        peer.chat()


@pytest.mark.parametrize("trust", ["user", "user,50001"])
def test_visitor_of_another_user_is_not_answered(trust, caplog):
    """It is sent away, and whoever comes next is met. Where the tests may not become another user, every visitor
    counts as one."""
    with fastsock.configure(trust=trust), hostile() as peer:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("trust", TRUSTS)
def test_another_user_may_hold_a_name_but_gets_nothing_there(trust: str) -> None:
    """The seeker sends its hello, with the connection, only to the user that the other end belongs to."""
    with fastsock.configure(trust=trust), hostile(publishes=True) as peer:
        exit_, entry = os.pipe()

        def hold() -> None:
            with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
                holder.bind(peer.name)
                holder.listen(1)
                os.write(entry, b"!")
                visitor = holder.accept()[0]
                visitor.settimeout(20)
                os.write(entry, visitor.recv(100) or b"nothing")

        pid = as_nobody(hold)
        assert os.read(exit_, 1) == b"!"

        def decided() -> bool:
            peer.chat()
            return fastsock.path_of(peer.victim) == fastsock.Path("tcp", "peer belongs to another user")

        until(decided, "the victim sees whose name it is")
        peer.chat()
        os.waitpid(pid, 0)
        assert os.read(exit_, 100) == b"nothing"
        os.close(exit_)
        os.close(entry)


# ---- a hello is bound to the connection ------------------------------------------------------------------------


def strangers_proof(kind: str, peer: Peer, stack: contextlib.ExitStack) -> socket.socket:
    """A socket that is not the peer's end, however much it looks like it."""
    if kind == "udp with the same names":
        proof = stack.enter_context(KernelSocket(socket.AF_INET, socket.SOCK_DGRAM))
        proof.bind(peer.tcp.getsockname())
        proof.connect(peer.tcp.getpeername())
        return proof
    proof = stack.enter_context(KernelSocket())
    if kind == "a connection of its own":
        listener = stack.enter_context(listening(False))
        proof.connect(listener.getsockname())
    return proof


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("kind", ["udp with the same names", "a connection of its own", "no connection"])
def test_only_the_other_end_of_the_connection_is_met(kind: str, trust: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever came is sent away, and the true peer is met."""
    with fastsock.configure(trust=trust), hostile() as peer:
        peer.knock()
        assert peer.control is not None
        memfd = peer.make_region()
        with contextlib.ExitStack() as stack:
            peer.say_hello([memfd], strangers_proof(kind, peer, stack))
        os.close(memfd)
        assert peer.control.recv(10) == b"u"
        assert not peer.answered()
        assert peer.region is not None
        peer.region.close()
        peer.control.close()
        peer.meet()
        peer.move()
        peer.post()
        assert peer.victim.recv(4) == b"ring"
        assert not violations(caplog)


@pytest.mark.parametrize("linger", [0, 1])
def test_a_look_at_the_proof_takes_no_byte_of_the_stream(linger: int) -> None:
    """It is closed by a thread of its own where its close may linger, as where another user sent it."""
    with hostile() as peer:
        peer.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 1))
        peer.knock()
        peer.victim.sendall(b"unread")
        memfd = peer.make_region()
        peer.say_hello([memfd])
        os.close(memfd)
        until(peer.answered, "the victim takes the region")
        own = file_of(peer.tcp.fileno())
        until(lambda: [file_of(int(fd)) for fd in os.listdir("/proc/self/fd")].count(own) == 1, "the proof is closed")
        assert peer.tcp.recv(10) == b"unread"


def test_the_same_names_in_another_network_are_no_proof() -> None:
    """A user may make a network namespace, with a connection of any names in it."""
    if os.geteuid():
        pytest.skip("only root makes a network namespace without a user namespace")
    with hostile() as peer:
        names = peer.tcp.getsockname(), peer.tcp.getpeername()
        ours, theirs = socket.socketpair()
        ours.settimeout(SECONDS)

        def connect_there() -> None:
            if ctypes.CDLL(None).unshare(0x40000000):
                return
            with KernelSocket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up
            with KernelSocket() as listener, KernelSocket() as proof:
                listener.bind(names[1])
                listener.listen(1)
                proof.bind(names[0])
                proof.connect(names[1])
                with listener.accept()[0] as far:
                    socket.send_fds(theirs, [b"!"], [proof.fileno(), far.fileno()])

        pid = forked_child(connect_there)
        _, [near, far], _, _ = socket.recv_fds(ours, 1, 2)
        os.waitpid(pid, 0)
        ours.close()
        theirs.close()
        with KernelSocket(fileno=near) as proof, KernelSocket(fileno=far):
            assert (proof.getsockname(), proof.getpeername()) == names
            peer.knock()
            memfd = peer.make_region()
            peer.say_hello([memfd], proof)
            os.close(memfd)
            assert peer.control is not None
            assert peer.control.recv(10) == b"u"
        assert not peer.answered()


@pytest.mark.parametrize("trust", ["any", f"user,{NOBODY}"])
def test_who_is_trusted_may_come_but_for_its_own_connection_only(trust: str, caplog: pytest.LogCaptureFixture) -> None:
    """Another user that is not the peer neither meets nor harms the connection."""
    if os.geteuid():
        pytest.skip("only root becomes another user")
    with fastsock.configure(trust=trust), hostile() as peer:
        peer.chat()
        exit_, entry = os.pipe()

        def visit() -> None:
            hellos = HELLO.pack(MAGIC, VERSION, 0, 4096, b"x" * 16), HELLO.pack(MAGIC, 9, 0, 1, b"")
            for message in (b"garbage", *hellos):
                with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor, KernelSocket() as proof:
                    visitor.settimeout(5)
                    visitor.connect(peer.name)
                    socket.send_fds(visitor, [message], [proof.fileno()])
                    os.write(entry, visitor.recv(10) or b"nothing")

        pid = as_nobody(visit)
        os.waitpid(pid, 0)
        os.close(entry)
        assert os.read(exit_, 100) == b"uuu"
        os.close(exit_)
        peer.meet()
        peer.move()
        peer.post()
        assert peer.victim.recv(4) == b"ring"
        assert not violations(caplog)
