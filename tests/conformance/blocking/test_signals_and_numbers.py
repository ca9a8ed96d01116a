"""Signal handlers that end what the interrupted call waits for: a closed number, O_NONBLOCK, a part that is there.

The kernel ends the call, Python runs the handler and calls again, with what the object's number means by then.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from harness.pairs import Pair, fill, pattern, payload, raises_errno, read_exactly, when_main_sleeps

from conformance.blocking.test_signals import Interrupt, handler, raise_interrupt, signal_main

CLOSES: dict[str, Callable[[socket.socket], object]] = {
    "close": lambda sock: sock.close(),
    "detach": lambda sock: os.close(sock.detach()),
    "os.close": lambda sock: os.close(sock.fileno()),
}
RECEIVES: dict[str, Callable[[socket.socket], object]] = {
    "recv": lambda sock: sock.recv(10),
    "recv_into": lambda sock: sock.recv_into(bytearray(10)),
    "recvmsg": lambda sock: sock.recvmsg(10),
    "recvmsg_into": lambda sock: sock.recvmsg_into([bytearray(10)]),
    "all": lambda sock: sock.recv(10, socket.MSG_WAITALL),
    "peek": lambda sock: sock.recv(10, socket.MSG_PEEK),
}
SENDS: dict[str, Callable[[socket.socket], object]] = {
    "send": lambda sock: sock.send(b"x"),
    "sendall": lambda sock: sock.sendall(b"x"),
    "sendmsg": lambda sock: sock.sendmsg([b"x"]),
}
LARGE = payload(64 << 20)


@contextmanager
def interrupted(act: Callable[[], object]) -> Iterator[None]:
    """Within it the next sleep of this thread is interrupted, and the handler does `act`."""
    with handler(act):
        helper = when_main_sleeps(signal_main)
        try:
            yield
        finally:
            helper.result()  # (a signal that came later would end the process)


@pytest.mark.parametrize("close", CLOSES)
@pytest.mark.parametrize("timeout", [None, 20])
@pytest.mark.parametrize("receive", RECEIVES)
def test_a_receive_whose_socket_a_handler_closes(pair: Pair, close: str, timeout: float | None, receive: str) -> None:
    near, far = pair
    near.settimeout(timeout)
    with interrupted(lambda: CLOSES[close](near)), raises_errno(errno.EBADF):
        RECEIVES[receive](near)
    if close == "os.close":
        near.detach()
    assert far.recv(10) == b""


@pytest.mark.parametrize("close", CLOSES)
@pytest.mark.parametrize("send", SENDS)
def test_a_send_whose_socket_a_handler_closes(pair: Pair, close: str, send: str) -> None:
    near, far = pair
    sent = fill(near)
    near.setblocking(True)
    more = 0
    with interrupted(lambda: CLOSES[close](near)), raises_errno(errno.EBADF):
        while True:  # until it sleeps: the kernel may find room for a little more
            SENDS[send](near)
            more += 1
    if close == "os.close":
        near.detach()
    assert read_exactly(far, sent + more) == pattern(sent) + b"x" * more
    assert far.recv(10) == b""


def test_a_long_sendall_whose_socket_a_handler_closes(pair: Pair) -> None:
    near, _ = pair
    with interrupted(near.close), raises_errno(errno.EBADF):
        near.sendall(LARGE)


def test_a_read_by_number(pair: Pair) -> None:
    near, far = pair
    number = near.fileno()
    with interrupted(near.close), raises_errno(errno.EBADF):
        os.read(number, 10)
    assert far.recv(10) == b""


def test_another_number_of_the_connection_stays(pair: Pair) -> None:
    near, far = pair
    with near.dup() as copy:
        with interrupted(near.close), raises_errno(errno.EBADF):
            near.recv(10)
        far.sendall(b"for the copy")
        assert copy.recv(100) == b"for the copy"
        with interrupted(copy.dup().close):
            far_later = when_main_sleeps(far.sendall, b"later")
            assert copy.recv(100) == b"later"
            far_later.result()


@pytest.mark.parametrize("call", ["recv", "sendall"])
def test_a_socket_that_a_handler_makes_non_blocking(pair: Pair, call: str) -> None:
    near, _ = pair
    if call == "sendall":
        fill(near)
        near.setblocking(True)
    for make in (lambda: near.setblocking(False), lambda: os.set_blocking(near.fileno(), False)):
        near.setblocking(True)
        with interrupted(make), raises_errno(errno.EAGAIN):
            while True:  # until it sleeps: the kernel may find room for a little more
                near.recv(10) if call == "recv" else near.sendall(b"x")


@pytest.mark.parametrize("call", ["recv", "send"])
def test_what_a_handler_raises_is_raised_also_behind_a_part(pair: Pair, call: str) -> None:
    """CPython runs the handler when the kernel's call has returned, and what was received is lost with the result."""
    near, far = pair
    far.sendall(b"part")
    with interrupted(raise_interrupt), pytest.raises(Interrupt):
        near.recv(10, socket.MSG_WAITALL) if call == "recv" else near.send(LARGE)
