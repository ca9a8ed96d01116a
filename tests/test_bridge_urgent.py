"""Urgent bytes sent after a bridge has come under one end: the other end hears of them at their place, as on TCP."""

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
from pairs import KernelSocket, Task, fill, make_pair, path_of, pattern, poll_mask, read_exactly, read_to_eof, until

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

SIOCATMARK = getattr(termios, "SIOCATMARK", 0x8905)


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


@pytest.mark.parametrize("inline", [0, 1], ids=["apart", "in-line"])
@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_urgent_bytes_cross_a_bridge_outward(kind: str, inline: int, caplog: pytest.LogCaptureFixture) -> None:
    with bridged_near(kind, inline, caplog) as (raw, far):
        check_urgent(raw, far, inline)
        assert path_of(far) == "tcp"
        raw.sendall(pattern(300_000))
        raw.shutdown(socket.SHUT_WR)
        assert read_to_eof(far) == pattern(300_000)


@pytest.mark.parametrize("inline", [0, 1], ids=["apart", "in-line"])
@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_urgent_bytes_cross_a_bridge_inward(kind: str, inline: int, caplog: pytest.LogCaptureFixture) -> None:
    with bridged_near(kind, inline, caplog) as (raw, far):
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE) == inline
        check_urgent(far, raw, inline)
        far.sendall(pattern(300_000))
        far.shutdown(socket.SHUT_WR)
        assert read_to_eof(raw) == pattern(300_000)


@pytest.mark.parametrize("inline", [0, 1], ids=["apart", "in-line"])
@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_an_urgent_byte_to_a_half_closed_peer(kind: str, inline: int) -> None:
    with make_pair(kind) as (near, far):
        far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
        far.sendall(b"unread")
        far.shutdown(socket.SHUT_WR)
        with KernelSocket(fileno=near.detach()) as raw:
            assert read_to_eof(raw) == b"unread"
            check_urgent(raw, far, inline)


@pytest.mark.parametrize("kind", ["kernel", "ring"])
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
