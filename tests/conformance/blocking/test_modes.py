"""Blocking, timeout and non-blocking mode: when a call waits, and what it raises when it may not."""

import errno
import time

import pytest
from harness.pairs import KINDS, Pair, Task, fill, pattern, raises_errno, read_exactly

RECEIVES = {
    "recv": lambda sock: sock.recv(10),
    "recv_into": lambda sock: sock.recv_into(bytearray(10)),
    "recvfrom": lambda sock: sock.recvfrom(10),
    "recvfrom_into": lambda sock: sock.recvfrom_into(bytearray(10)),
    "recvmsg": lambda sock: sock.recvmsg(10),
    "recvmsg_into": lambda sock: sock.recvmsg_into([bytearray(10)]),
}

SENDS = {
    "send": lambda sock: sock.send(b"x"),
    "sendall": lambda sock: sock.sendall(b"x"),
    "sendmsg": lambda sock: sock.sendmsg([b"x", b"y"]),
    "sendto": lambda sock: sock.sendto(b"x", sock.getpeername()),
}


@pytest.mark.parametrize("name", RECEIVES)
def test_nothing_to_receive(pair: Pair, name: str) -> None:
    near, far = pair
    near.setblocking(False)
    with raises_errno(errno.EAGAIN):
        RECEIVES[name](near)
    near.settimeout(0.02)
    with pytest.raises(TimeoutError) as caught:
        RECEIVES[name](near)
    assert (caught.value.args, caught.value.errno) == (("timed out",), None)
    near.settimeout(None)
    waiting = Task(RECEIVES[name], near).until_asleep()
    far.sendall(b"0123456789")
    waiting.result()


@pytest.mark.parametrize("name", SENDS)
def test_no_room_to_send(pair: Pair, name: str) -> None:
    near, far = pair
    sent = fill(near)

    def send_until_refused() -> None:
        """A full ring takes nothing; the kernel may move bytes on, on a busy machine."""
        while True:
            SENDS[name](near)
            assert not KINDS[pair.kind].moved

    near.setblocking(False)
    with raises_errno(errno.EAGAIN):
        send_until_refused()
    near.settimeout(0.02)
    with pytest.raises(TimeoutError) as caught:
        send_until_refused()
    assert (caught.value.args, caught.value.errno) == (("timed out",), None)
    near.settimeout(None)
    while not (waiting := Task(SENDS[name], near)).blocks():
        assert not KINDS[pair.kind].moved
        waiting.result()
    assert read_exactly(far, sent) == pattern(sent)
    waiting.result()
    assert far.recv(1) == b"x"


def test_a_timeout_is_not_early(pair: Pair) -> None:
    near, _ = pair
    near.settimeout(0.1)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        near.recv(1)
    assert time.monotonic() - start >= 0.095


def test_a_timeout_loses_no_byte(pair: Pair) -> None:
    near, far = pair
    near.settimeout(0.01)
    received = b""
    for number in range(10):
        with pytest.raises(TimeoutError):
            near.recv(100)
        far.sendall(b"%d" % number)
        received += near.recv(100)
    assert received == b"0123456789"


def test_both_directions_are_full_at_once(pair: Pair) -> None:
    near, far = pair
    there, back = fill(near), fill(far)
    assert read_exactly(near, back) == pattern(back)
    assert read_exactly(far, there) == pattern(there)


def test_a_new_timeout_leaves_a_waiting_call_alone(pair: Pair) -> None:
    near, far = pair
    waiting = Task(near.recv, 100).until_asleep()
    near.settimeout(0.01)
    with pytest.raises(TimeoutError):
        near.recv(100)
    assert waiting.is_alive()
    far.sendall(b"late")
    assert waiting.result() == b"late"
