"""MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC and MSG_NOSIGNAL do what they do on TCP."""

import errno
import signal
import socket
from socket import MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL

import pytest
from harness.pairs import Pair, Task, payload, raises_errno, read_exactly, reset, until

import fastsock


def test_peek_leaves_the_bytes(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"peeked at")
    for _ in range(3):
        assert near.recv(100, MSG_PEEK) == b"peeked at"
        assert near.recv(4, MSG_PEEK) == b"peek"
    assert near.recv(100) == b"peeked at"
    with raises_errno(errno.EAGAIN):
        near.recv(100, MSG_PEEK | MSG_DONTWAIT)


def test_every_call_can_peek(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"data")
    room = bytearray(4)
    assert near.recvfrom(100, MSG_PEEK) == (b"data", None)
    assert near.recvmsg(100, 0, MSG_PEEK)[0] == b"data"
    assert near.recv_into(room, 4, MSG_PEEK) == 4
    assert near.recvfrom_into(room, 4, MSG_PEEK) == (4, None)
    assert near.recvmsg_into([room], 0, MSG_PEEK)[0] == 4
    assert near.recv(100) == room == b"data"


def test_peek_sees_across_sends(pair: Pair) -> None:
    near, far = pair
    data = payload(100_000)
    for start in range(0, len(data), 5000):
        far.sendall(data[start : start + 5000])
    until(lambda: len(near.recv(len(data), MSG_PEEK)) == len(data), "everything is there")
    assert near.recv(len(data), MSG_PEEK) == data
    assert near.recv(12_345) == data[:12_345]
    assert near.recv(len(data), MSG_PEEK) == data[12_345:]
    assert read_exactly(near, len(data) - 12_345) == data[12_345:]


def test_peek_at_the_end(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"last")
    far.shutdown(socket.SHUT_WR)
    assert near.recv(100, MSG_PEEK) == near.recv(100) == b"last"
    assert near.recv(100, MSG_PEEK) == near.recv(100) == near.recv(100, MSG_PEEK | MSG_DONTWAIT) == b""


@pytest.mark.parametrize("size", [10, 5000, 300_000, 4 << 20])
def test_waitall_returns_everything(pair: Pair, size: int) -> None:
    near, far = pair
    data = payload(size)
    whole = Task(near.recv, size, MSG_WAITALL).until_asleep()
    for start in range(0, size, size // 5):
        far.sendall(data[start : start + size // 5])
    far.sendall(b"more")
    assert whole.result() == data
    assert near.recv(100) == b"more"


def test_waitall_into_buffers(pair: Pair) -> None:
    near, far = pair
    rooms = [bytearray(3), bytearray(5)]
    whole = Task(near.recvmsg_into, rooms, 0, MSG_WAITALL).until_asleep()
    far.sendall(b"0123")
    far.sendall(b"456789")
    assert whole.result()[0] == 8
    assert rooms == [b"012", b"34567"]
    assert near.recv_into(rooms[0], 2, MSG_WAITALL) == 2
    assert rooms[0] == b"892"


def test_waitall_with_peek(pair: Pair) -> None:
    near, far = pair
    whole = Task(near.recv, 8, MSG_WAITALL | MSG_PEEK).until_asleep()
    far.sendall(b"0123")
    far.sendall(b"456789")
    assert whole.result() == b"01234567"
    assert near.recv(100) == b"0123456789"


def cut_by_a_reset(near: socket.socket, far: socket.socket) -> None:
    whole = Task(near.recv, 100, MSG_WAITALL).until_asleep()
    far.sendall(b"not quite")
    reset(far)
    assert whole.result() == b"not quite"
    with raises_errno(errno.ECONNRESET):
        near.recv(100)


def test_waitall_is_cut_by_a_reset(pair: Pair) -> None:
    cut_by_a_reset(*pair)


def test_a_reset_that_cut_a_waitall_is_told_where_nobody_polls(pair: Pair) -> None:
    """A connection that stays on kernel TCP leaves its calls to the stdlib then, and the kernel has told already."""
    with fastsock.configure(poll_us=0):
        cut_by_a_reset(*pair)


def test_waitall_with_a_timeout_takes_what_is_there(pair: Pair) -> None:
    near, far = pair
    near.settimeout(5)
    far.sendall(b"not quite")
    assert near.recv(100, MSG_WAITALL) == b"not quite"
    near.settimeout(0.05)
    with pytest.raises(TimeoutError, match=r"^timed out$"):
        near.recv(100, MSG_WAITALL)


def test_dontwait_on_a_blocking_socket(pair: Pair) -> None:
    near, far = pair
    for receive in (near.recv, near.recvfrom, lambda size, flags: near.recvmsg(size, 0, flags)):
        with raises_errno(errno.EAGAIN):
            receive(100, MSG_DONTWAIT)
    with raises_errno(errno.EAGAIN):
        near.recv_into(bytearray(10), 0, MSG_DONTWAIT)
    far.sendall(b"data")
    assert near.recv(100, MSG_PEEK) == b"data"  # (waits: a busy kernel may hand it over later)
    assert near.recv(100, MSG_DONTWAIT) == b"data"
    assert near.gettimeout() is None


def test_dontwait_does_not_shorten_a_timeout(pair: Pair) -> None:
    near, far = pair
    near.settimeout(0.05)
    with pytest.raises(TimeoutError, match=r"^timed out$"):
        near.recv(100, MSG_DONTWAIT)
    near.settimeout(10)
    late = Task(near.recv, 100, MSG_DONTWAIT).until_asleep()
    far.sendall(b"late")
    assert late.result() == b"late"


@pytest.mark.parametrize("flag", [socket.MSG_MORE, socket.MSG_EOR, socket.MSG_DONTROUTE, socket.MSG_CONFIRM])
def test_a_flag_that_means_nothing_to_a_receive(pair: Pair, flag: int) -> None:
    near, far = pair
    far.sendall(b"abcdef")
    assert near.recv(2, flag) == b"ab"
    assert near.recv(2, flag | MSG_DONTWAIT) == b"cd"
    assert near.recvmsg(2, 0, flag | socket.MSG_CMSG_CLOEXEC) == (b"ef", [], socket.MSG_CMSG_CLOEXEC, None)


def test_trunc_drops_bytes(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"0123456789")
    assert len(near.recv(4, MSG_TRUNC)) == 4
    room = bytearray(b"...")
    assert near.recv_into(room, 3, MSG_TRUNC) == 3
    assert room == b"..."
    assert near.recv(100) == b"789"


def test_only_nosignal_spares_the_process_sigpipe(pair: Pair) -> None:
    near, _ = pair
    signals = []
    previous = signal.signal(signal.SIGPIPE, lambda number, frame: signals.append(number))
    try:
        near.shutdown(socket.SHUT_WR)
        for send in (near.send, near.sendall, lambda data, flags: near.sendmsg([data], [], flags)):
            with raises_errno(errno.EPIPE):
                send(b"x", MSG_NOSIGNAL)
        assert signals == []
        for send in (near.send, near.sendall, lambda data: near.sendmsg([data])):
            with raises_errno(errno.EPIPE):
                send(b"x")
        assert signals == [signal.SIGPIPE] * 3
    finally:
        signal.signal(signal.SIGPIPE, previous)
