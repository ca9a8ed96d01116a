"""Closing: end of stream or reset, what is delivered before it, and what the other end's calls raise."""

import contextlib
import errno
import gc
import os
import select
import socket
import struct
from pathlib import Path

import pytest
from harness.pairs import Pair, Task, error_of, fill, pattern, payload, raises_errno, read_to_eof, reset, until


def until_reset(sock: socket.socket) -> None:
    """Waits until the kernel knows that the connection was reset."""
    poll = select.poll()
    poll.register(sock, 0)
    until(lambda: any(events & select.POLLERR for _, events in poll.poll(0)), "the reset arrived")


def test_bytes_then_the_end(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"last words")
    far.close()
    assert near.recv(4) == b"last"
    assert near.recv(100) == b" words"
    for _ in range(3):
        assert near.recv(100) == b""


def test_a_full_connection_outlives_its_sender(pair: Pair) -> None:
    near, far = pair
    sent = fill(far)
    far.close()
    assert read_to_eof(near) == pattern(sent)


def test_sending_to_a_closed_peer(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"unread")
    far.close()
    assert near.send(b"the first one is taken") == 22
    until_reset(near)
    for _ in range(2):
        with raises_errno(errno.EPIPE):
            near.send(b"x")
    assert near.recv(100) == b"unread"
    assert near.recv(100) == near.recv(100) == b""


def test_closing_with_bytes_unread_resets_the_peer(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"never read")
    far.sendall(b"delivered")
    far.close()
    until_reset(near)
    assert near.recv(4) == b"deli"
    assert near.recv(100) == b"vered"
    with raises_errno(errno.ECONNRESET):
        near.recv(100)
    assert near.recv(100) == near.recv(100) == b""
    with raises_errno(errno.EPIPE):
        near.send(b"x")


def test_closing_with_everything_read_does_not_reset(pair: Pair) -> None:
    near, far = pair
    for _ in range(50):
        near.sendall(b"request")
        assert far.recv(100) == b"request"
        far.sendall(b"answer")
        assert near.recv(100) == b"answer"
    far.close()
    assert near.recv(100) == b""
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_a_send_finds_the_reset_first(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"never read")
    far.sendall(b"delivered")
    far.close()
    until_reset(near)
    with raises_errno(errno.ECONNRESET):
        near.send(b"x")
    with raises_errno(errno.EPIPE):
        near.send(b"x")
    assert near.recv(100) == b"delivered"
    assert near.recv(100) == b""


def test_a_reset_after_the_end(pair: Pair) -> None:
    near, far = pair
    far.shutdown(socket.SHUT_WR)
    assert near.recv(100) == b""
    near.sendall(b"never read")
    far.close()
    until_reset(near)
    assert near.recv(100) == b""
    with raises_errno(errno.EPIPE):
        near.send(b"x")


def test_linger_zero_resets(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"delivered")
    until(lambda: near.recv(100, socket.MSG_PEEK) == b"delivered", "the bytes are there")
    reset(far)
    until_reset(near)
    assert near.recv(100) == b"delivered"
    with raises_errno(errno.ECONNRESET):
        near.recv(100)
    assert near.recv(100) == b""


def test_linger_with_time_delivers(pair: Pair) -> None:
    near, far = pair
    data = payload(1 << 20)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    reader = Task(read_to_eof, near)
    far.sendall(data)
    far.close()
    assert reader.result() == data


def test_a_forgotten_socket_is_closed(pair: Pair) -> None:
    near, far = pair
    forgotten = type(near)(fileno=near.detach())
    forgotten.sendall(b"last words")
    with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031
        del forgotten
        gc.collect()
    assert read_to_eof(far) == b"last words"


CALLS = {
    "send": lambda sock: sock.send(b"x"),
    "sendall": lambda sock: sock.sendall(b"x"),
    "sendmsg": lambda sock: sock.sendmsg([b"x"]),
    "sendto": lambda sock: sock.sendto(b"x", ("127.0.0.1", 9)),
    "recv": lambda sock: sock.recv(1),
    "recv_into": lambda sock: sock.recv_into(bytearray(1)),
    "recvfrom": lambda sock: sock.recvfrom(1),
    "recvfrom_into": lambda sock: sock.recvfrom_into(bytearray(1)),
    "recvmsg": lambda sock: sock.recvmsg(1),
    "recvmsg_into": lambda sock: sock.recvmsg_into([bytearray(1)]),
    "shutdown": lambda sock: sock.shutdown(socket.SHUT_RDWR),
    "getpeername": lambda sock: sock.getpeername(),
    "getsockname": lambda sock: sock.getsockname(),
    "getsockopt": lambda sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
    "setsockopt": lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "settimeout": lambda sock: sock.settimeout(1),
    "setblocking": lambda sock: sock.setblocking(False),
    "dup": lambda sock: sock.dup(),
    "listen": lambda sock: sock.listen(),
    "accept": lambda sock: sock.accept(),
    "connect": lambda sock: sock.connect(("127.0.0.1", 9)),
    "get_inheritable": lambda sock: sock.get_inheritable(),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_a_closed_socket(pair: Pair, reference: Pair, name: str) -> None:
    near, _ = pair
    for sock in (near, reference.near):
        sock.sendall(b"some")
        sock.close()
    assert error_of(CALLS[name], near) == error_of(CALLS[name], reference.near)
    with raises_errno(errno.EBADF):
        CALLS[name](near)


def open_sockets() -> set[str]:
    """What ``/proc`` says of every open descriptor; a socket by its inode."""
    targets = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.add(os.readlink(link))
    return targets


def test_closing_leaves_no_descriptor_of_the_connection(pair: Pair) -> None:
    near, _ = pair
    own = f"socket:[{os.fstat(near.fileno()).st_ino}]"
    assert own in open_sockets()
    near.close()
    assert own not in open_sockets()
