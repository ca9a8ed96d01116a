"""A peer in another process: it talks, is stopped, exits without closing, or is killed with SIGKILL.

Functions that take ``far`` run in the child, where only names of ``pairs`` and ``processes`` are in scope.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import struct

import pytest
from harness.pairs import (
    KINDS,
    SECONDS,
    Task,
    eventually,
    names_of,
    path_of,
    pattern,
    payload,
    poll_mask,
    raises_errno,
    read_exactly,
    read_to_eof,
    until,
    until_asleep,
    when_main_sleeps,
)

from conformance.blocking.processes import Child, say, spawn, told


def echo(far: socket.socket) -> None:
    while chunk := far.recv(100_000):
        far.sendall(chunk)


def stand_by(far: socket.socket) -> None:
    say("standing by")
    told()


def leave_unread(far: socket.socket) -> None:
    far.recv(1, socket.MSG_PEEK)
    say("arrived")
    told()


def send_and_stand_by(far: socket.socket) -> None:
    far.sendall(pattern(100_000))
    say("sent")
    told()


def send_and_leave_unread(far: socket.socket) -> None:
    far.sendall(pattern(100_000))
    far.recv(1, socket.MSG_PEEK)
    say("arrived")
    told()


def send_without_end(far: socket.socket) -> None:
    while True:
        far.sendall(pattern(1 << 16))


def read_without_end(far: socket.socket) -> None:
    while far.recv(10_000):
        pass


def send_and_return(far: socket.socket) -> None:
    far.sendall(pattern(100_000))


def send_and_exit_at_once(far: socket.socket) -> None:
    far.sendall(pattern(100_000))
    os._exit(0)


def half_close_and_leave_unread(far: socket.socket) -> None:
    far.shutdown(socket.SHUT_WR)
    far.recv(1, socket.MSG_PEEK)
    say("arrived")
    told()


def kill_when_main_sleeps(child: Child) -> Task:
    return when_main_sleeps(child.kill)


def test_a_large_transfer_there_and_back(kind: str) -> None:
    with spawn(kind, echo) as (near, child):
        data = payload(16 << 20)
        writer = Task(near.sendall, data)
        assert read_exactly(near, len(data)) == data
        writer.result()
        expected = "ring" if KINDS[kind].moves else "tcp"

        def is_on_its_path() -> bool:
            near.sendall(b"more")
            assert read_exactly(near, 4) == b"more"
            return path_of(near) == expected

        until(is_on_its_path, f"it is on {expected}")  # (all may be over before the connection threads have run)
        near.close()
        assert child.wait() == 0


def test_a_peer_that_is_stopped_and_continued(kind: str) -> None:
    with spawn(kind, echo) as (near, child):
        near.sendall(b"running")
        assert read_exactly(near, 7) == b"running"
        os.kill(child.pid, signal.SIGSTOP)
        data = payload(8 << 20)
        writer = Task(near.sendall, data)
        poll = select.poll()
        poll.register(near, select.POLLIN)
        assert poll.poll(50) == [], "a stopped peer says nothing"
        os.kill(child.pid, signal.SIGCONT)
        assert read_exactly(near, len(data)) == data
        writer.result()


@pytest.mark.parametrize("leave", [send_and_return, send_and_exit_at_once])
def test_a_peer_that_exits_without_closing(kind: str, leave) -> None:
    with spawn(kind, leave) as (near, child):
        assert child.wait() == 0
        assert read_to_eof(near) == pattern(100_000)
        assert near.recv(1) == b""


def test_a_peer_that_exits_with_bytes_unread(kind: str) -> None:
    with spawn(kind, leave_unread) as (near, child):
        near.sendall(b"never read")
        assert child.line() == "arrived"
        child.tell()
        assert child.wait() == 0
        with raises_errno(errno.ECONNRESET):
            near.recv(100)


def test_what_a_killed_peer_had_sent_is_delivered(kind: str) -> None:
    with spawn(kind, send_and_stand_by) as (near, child):
        assert child.line() == "sent"
        child.kill()
        assert read_to_eof(near) == pattern(100_000)
        assert near.recv(1) == near.recv(1) == b""
        near.sendall(b"the first one is taken")
        eventually(lambda: names_of(poll_mask(near)), "IN|OUT|ERR|HUP|RDHUP")
        with raises_errno(errno.EPIPE):
            near.send(b"x")


def test_a_peer_killed_with_bytes_unread_resets(kind: str) -> None:
    with spawn(kind, send_and_leave_unread) as (near, child):
        eventually(lambda: len(near.recv(100_000, socket.MSG_PEEK)), 100_000)
        near.sendall(b"never read")
        assert child.line() == "arrived"
        child.kill()
        assert read_exactly(near, 100_000) == pattern(100_000)
        with raises_errno(errno.ECONNRESET):
            near.recv(100)
        assert near.recv(100) == b""


@pytest.mark.parametrize("first", ["send", "recv"])
@pytest.mark.parametrize("killed_first", [False, True])
def test_our_half_close_hides_no_reset_of_a_killed_peer(kind: str, killed_first: bool, first: str) -> None:
    with spawn(kind, leave_unread) as (near, child):
        near.sendall(b"never read")
        assert child.line() == "arrived"
        if killed_first:
            child.kill()
            with contextlib.suppress(OSError):  # ENOTCONN in TCP; see docs/limitations.md
                near.shutdown(socket.SHUT_WR)
        else:
            near.shutdown(socket.SHUT_WR)
            child.kill()
        with raises_errno(errno.ECONNRESET):
            near.send(b"x") if first == "send" else near.recv(100)
        with raises_errno(errno.EPIPE):
            near.send(b"x")
        assert near.recv(100) == b""


@pytest.mark.parametrize("timeout", [None, 20])
def test_killed_while_we_sleep_in_recv(kind: str, timeout: float | None) -> None:
    with spawn(kind, stand_by) as (near, child):
        assert child.line() == "standing by"
        near.settimeout(timeout)
        killer = kill_when_main_sleeps(child)
        assert near.recv(100) == b""
        killer.result()


def test_killed_while_we_sleep_in_poll(kind: str) -> None:
    with spawn(kind, stand_by) as (near, child):
        assert child.line() == "standing by"
        poll = select.poll()
        poll.register(near, select.POLLIN | select.POLLRDHUP)
        killer = kill_when_main_sleeps(child)
        assert names_of(poll.poll(SECONDS * 1000)[0][1]) == "IN|RDHUP"
        killer.result()
        assert near.recv(100) == b""


@pytest.mark.parametrize("timeout", [None, 20])
def test_killed_while_we_sleep_in_sendall(kind: str, timeout: float | None) -> None:
    with spawn(kind, stand_by) as (near, child):
        assert child.line() == "standing by"
        near.settimeout(timeout)
        killer = kill_when_main_sleeps(child)
        with raises_errno(errno.ECONNRESET):
            near.sendall(payload(16 << 20))
        killer.result()
        with raises_errno(errno.EPIPE):
            near.sendall(b"x")
        assert near.recv(100) == b""


def test_killed_while_it_sends(kind: str) -> None:
    with spawn(kind, send_without_end) as (near, child):
        received = read_exactly(near, 4 << 20)
        until_asleep(child.pid)
        child.kill()
        received += read_to_eof(near)
        assert received == pattern(len(received))
        assert len(received) > 4 << 20, "what it had sent when it was killed is delivered"


def test_killed_while_it_receives_what_we_send(kind: str) -> None:
    with spawn(kind, read_without_end) as (near, child):
        near.sendall(payload(1 << 20))
        killer = Task(child.kill)
        # Which of the two depends on whether it had read everything at that moment.
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012
            while True:
                near.sendall(payload(100_000))
        killer.result()


def test_killed_after_its_half_close(kind: str) -> None:
    with spawn(kind, half_close_and_leave_unread) as (near, child):
        assert near.recv(100) == b""
        near.sendall(b"never read")
        assert child.line() == "arrived"
        child.kill()
        with raises_errno(errno.EPIPE):
            near.send(b"x")
        assert near.recv(100) == b""


def half_close_and_stand_by(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)
    say("standing by")
    told()


@pytest.mark.parametrize("by", ["settimeout", "SO_SNDTIMEO"])
def test_killed_after_its_half_close_while_we_wait_for_room_shortly(kind: str, by: str) -> None:
    """No wait is so long that something looks at the peer meanwhile."""
    with spawn(kind, half_close_and_stand_by) as (near, child):
        assert child.line() == "standing by"
        assert near.recv(100) == b""
        near.setblocking(False)
        with pytest.raises(BlockingIOError):  # noqa: PT012
            while True:
                near.send(payload(1 << 20))
        child.kill()
        near.settimeout(0.05 if by == "settimeout" else None)
        if by == "SO_SNDTIMEO":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))

        def error() -> int | None:
            try:
                near.send(b"x")
            except (TimeoutError, BlockingIOError):
                return None
            except OSError as error:
                return error.errno
            return 0

        until(lambda: error() == errno.EPIPE, "the send fails")
