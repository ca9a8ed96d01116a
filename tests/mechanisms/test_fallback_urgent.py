"""Urgent bytes before, during and after the way out, and across a bridge: no byte of the stream is lost or doubled on
their account, and the other end hears of them at their place, as on TCP."""

import array
import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import termios
from collections.abc import Callable, Iterator

import pytest
from harness.pairs import (
    KernelSocket,
    Pair,
    Task,
    fill,
    make_pair,
    path_of,
    pattern,
    payload,
    poll_mask,
    read_exactly,
    read_to_eof,
    until,
)

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

SIOCATMARK = getattr(termios, "SIOCATMARK", 0x8905)
EXPOSED = pytest.mark.parametrize("exposed", [False, True], ids=["unexposed", "exposed"])
INLINE = pytest.mark.parametrize("inline", [0, 1], ids=["apart", "in-line"])


@pytest.fixture(params=["kernel", "ring"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def expose(sock: socket.socket, exposed: bool) -> None:
    if exposed:
        sock.fileno()


# ---- the way out ----------------------------------------------------------------------------------------------


@EXPOSED
@INLINE
@pytest.mark.parametrize("half_closed", [False, True], ids=["open", "half-closed"])
@pytest.mark.parametrize("leaves", ["nobody", "sender", "receiver"])
@pytest.mark.parametrize("read", [0, 2, 4, 6])
def test_an_urgent_byte_and_who_leaves(
    pair: Pair, read: int, leaves: str, half_closed: bool, inline: int, exposed: bool
) -> None:
    """Where both streams have ended the kernel no longer tells how far its stream was read; and behind the doorbell
    bytes of a sender that leaves come bytes that nobody has counted."""
    near, far = pair
    expose(far, exposed)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
    expected = b"ab!cdef" if inline else b"abcdef"
    if half_closed:
        far.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
    near.send(b"ab!", socket.MSG_OOB)
    near.sendall(b"cd")
    near.sendall(b"ef")
    assert read_exactly(far, read) == expected[:read]
    sender = KernelSocket(fileno=near.detach()) if leaves == "sender" else near
    receiver = KernelSocket(fileno=far.detach()) if leaves == "receiver" else far
    with sender, receiver:
        rest = payload(3000)
        sender.sendall(rest)
        sender.shutdown(socket.SHUT_WR)
        assert read_to_eof(receiver) == expected[read:] + rest


@EXPOSED
def test_urgent_bytes_in_line_behind_the_way_out_are_all_read(pair: Pair, exposed: bool) -> None:
    """A kernel that is to keep urgent bytes apart drops one that nobody has read for the next one: it has to know that
    they are in line before the reader has seen that the sender left."""
    near, far = pair
    expose(far, exposed)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    with KernelSocket(fileno=near.detach()) as raw:
        for byte in b"abc":
            raw.send(bytes([byte]), socket.MSG_OOB)
        raw.sendall(b"rest")
    assert read_to_eof(far) == b"abcrest"


# ---- a bridge -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def bridged_near(
    kind: str,
    inline: int,
    caplog: pytest.LogCaptureFixture,
    prepare: Callable[[socket.socket], object] = lambda near: None,
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """``near``, raw, that has read all and still gets bytes; ``far``. On the ring a bridge lies between them: more lay
    unread than the kernel takes."""
    settings = {} if kind == "kernel" else {"window": 1024, "memory_cap": 1 << 30}
    with fastsock.configure(**settings), make_pair(kind) as (near, far):
        near.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
        prepare(near)
        far.setblocking(False)
        sent = fill(far)
        far.setblocking(True)
        with caplog.at_level("DEBUG", "fastsock"), KernelSocket(fileno=near.detach()) as raw:
            assert bool(re.search(r"fastsock\.bridge", caplog.text)) == (kind == "ring")
            following = Task(far.sendall, b"and on")
            assert read_exactly(raw, sent + 6) == pattern(sent) + b"and on"
            following.result()
            yield raw, far


def at_mark(sock: socket.socket) -> bool:
    answer = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), SIOCATMARK, answer)
    return bool(answer[0])


def check_urgent(sender: socket.socket, receiver: socket.socket, inline: int) -> None:
    """Urgent bytes, each between ordinary ones that go with it and behind it."""
    for byte in (b"!", b"?"):
        sender.send(b"ab" + byte, socket.MSG_OOB)
        until(lambda: poll_mask(receiver, select.POLLPRI) & select.POLLPRI, "POLLPRI")
        sender.sendall(b"cdef")
        until(lambda: poll_mask(receiver, select.POLLIN) & select.POLLIN, "bytes")
        assert read_exactly(receiver, 2) == b"ab"
        assert at_mark(receiver)
        if inline:
            assert read_exactly(receiver, 5) == byte + b"cdef"
        else:
            assert receiver.recv(1, socket.MSG_OOB) == byte
            assert read_exactly(receiver, 4) == b"cdef"
        assert not at_mark(receiver)


@INLINE
@pytest.mark.parametrize("way", ["outward", "inward"])
def test_urgent_bytes_cross_a_bridge(kind: str, way: str, inline: int, caplog: pytest.LogCaptureFixture) -> None:
    with bridged_near(kind, inline, caplog) as (raw, far):
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE) == inline
        sender, receiver = (raw, far) if way == "outward" else (far, raw)
        check_urgent(sender, receiver, inline)
        assert way == "inward" or path_of(far) == "tcp"
        sender.sendall(pattern(300_000))
        sender.shutdown(socket.SHUT_WR)
        assert read_to_eof(receiver) == pattern(300_000)


def test_the_owner_of_a_descriptor_gets_sigurg_across_a_bridge(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each urgent byte, and from no other socket than the one that the program has now."""
    heard: list[int] = []

    def own(near: socket.socket) -> None:
        fcntl.fcntl(near.fileno(), fcntl.F_SETOWN, os.getpid())

    before = signal.signal(signal.SIGURG, lambda *_: heard.append(1))
    try:
        with bridged_near(kind, 0, caplog, own) as (raw, far):
            assert fcntl.fcntl(raw.fileno(), fcntl.F_GETOWN) == os.getpid()
            assert not heard
            far.send(b"ab!", socket.MSG_OOB)
            until(lambda: heard, "SIGURG")
            far.sendall(b"cd")
            assert read_exactly(raw, 2) == b"ab"
            assert raw.recv(1, socket.MSG_OOB) == b"!"
            assert read_exactly(raw, 2) == b"cd"
            assert heard == [1]
    finally:
        signal.signal(signal.SIGURG, before)
