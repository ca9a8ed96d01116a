"""A send that waits for room while something happens to the other direction, or to the peer."""

import contextlib
import os
import signal
import socket
import time
from socket import SHUT_RDWR, SHUT_WR
from typing import Any

import pytest
from harness.pairs import KINDS, Pair, Task, payload, read_to_eof, until, until_asleep

from conformance.blocking.processes import forked, spawn

SIZE = 24 << 20
"""Bytes that no connection of these tests takes without a reader."""


def blocked_send(sock: socket.socket, data: bytes) -> Task:
    return Task(sock.sendall, data).until_asleep()


def test_a_peer_that_ends_its_stream_gets_the_rest(pair: Pair) -> None:
    near, far = pair
    data = payload(SIZE)
    sending = blocked_send(far, data)
    near.shutdown(SHUT_WR)
    time.sleep(0.1)  # whatever the sender makes of it
    assert sending.is_alive()
    ending = Task(lambda: (sending.result(), far.shutdown(SHUT_WR)))
    assert read_to_eof(near) == data
    ending.result()
    assert far.recv(1) == b""


@pytest.mark.parametrize("after", [0.0, 0.7])
def test_a_peer_that_ends_its_stream_while_it_reads(pair: Pair, after: float) -> None:
    near, far = pair
    data = payload(SIZE)
    sending = blocked_send(far, data)
    got = near.recv(100_000)
    near.shutdown(SHUT_WR)
    time.sleep(after)
    got += near.recv(100_000)
    ending = Task(lambda: (sending.result(), far.close()))
    assert got + read_to_eof(near) == data
    ending.result()


def test_a_peer_that_shuts_both_directions_leaves_the_sender_waiting(pair: Pair) -> None:
    near, far = pair
    sending = blocked_send(far, payload(SIZE))
    near.shutdown(SHUT_RDWR)
    time.sleep(1.2)  # longer than any interval at which a sender looks at its peer
    assert sending.is_alive()
    near.close()
    with pytest.raises(ConnectionError):
        sending.result()


def test_a_peer_that_shuts_both_directions_still_reads_what_was_sent(pair: Pair) -> None:
    near, far = pair
    data = payload(SIZE)
    sending = blocked_send(far, data)
    near.shutdown(SHUT_RDWR)
    got = bytearray()
    with contextlib.suppress(ConnectionResetError):  # what is sent into the room that this makes draws a reset
        while piece := near.recv(1 << 16):
            got += piece
    assert got
    assert data.startswith(got)
    with pytest.raises(ConnectionError):
        sending.result()


def until_killed(far: socket.socket) -> None:
    """In the child: ends its stream as told, and reads nothing."""
    import sys  # the function's source is all that the child knows

    how = sys.stdin.readline().strip()
    if how:
        far.shutdown(int(how))
    print("done", flush=True)
    time.sleep(60)


@pytest.mark.parametrize("how", ["", SHUT_WR, SHUT_RDWR], ids=["open", "half-closed", "shut"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("timeout", [None, 20])
def test_a_killed_peer_is_noticed(kind: str, how: Any, when: str, timeout: float | None) -> None:
    """`when`: the peer ends its stream before or after the send begins to wait."""
    with spawn(kind, until_killed) as (near, child):
        near.settimeout(timeout)

        def end_stream() -> None:
            child.tell(str(how))
            assert child.line() == "done"

        if when == "before" and how != SHUT_RDWR:  # (sending to a peer that has shut both directions draws a reset)
            end_stream()
        sending = blocked_send(near, payload(SIZE))
        if when == "after" or how == SHUT_RDWR:
            end_stream()
            sending.until_asleep()
        assert sending.is_alive()
        child.kill()
        with pytest.raises(ConnectionError):
            sending.result()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].moved])
def test_a_sender_behind_a_half_close_is_told_of_death_by_an_event(kind: str) -> None:
    """The same, without a clock: the end of its process is an event."""
    with spawn(kind, until_killed) as (near, child):
        sending = blocked_send(near, payload(SIZE))
        child.tell(str(SHUT_WR))
        assert child.line() == "done"
        assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x08"  # TCP_CLOSE_WAIT
        child.kill()
        with pytest.raises(ConnectionError):
            sending.result()


def test_a_fork_in_a_handler_of_a_waiting_receive(pair: Pair) -> None:
    """Both processes are inside the call then, and each goes on; the child's end says goodbye as any."""
    near, far = pair
    children = []

    def handler(*_: object) -> None:
        children.append(os.fork())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        releasing = Task(lambda: (until(lambda: children, "the fork"), far.sendall(b"12")))
        timer = Task(lambda: (until_asleep(os.getpid()), os.kill(os.getpid(), signal.SIGUSR1)))
        got = near.recv(1)
        if children == [0]:  # the child, inside its parent's call
            status = 1
            try:
                near.close()
                far.close()
                status = 0 if got in (b"1", b"2") else 2
            finally:
                os._exit(status)
        timer.result()
        releasing.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got in (b"1", b"2")
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert near.recv(1, socket.MSG_DONTWAIT) == b"" if not far else True
    far.shutdown(SHUT_WR)
    assert near.recv(1) == b""


def test_a_child_that_forked_in_a_handler_ends_the_stream(pair: Pair) -> None:
    """The parent lets go; the connection ends with the child, whose call was under way when it was made."""
    near, far = pair

    def child() -> None:
        far.close()
        inner: list[int] = []

        def handler(*_: object) -> None:
            inner.append(os.fork())

        signal.signal(signal.SIGUSR1, handler)
        Task(lambda: (until_asleep(os.getpid()), os.kill(os.getpid(), signal.SIGUSR1)))
        near.settimeout(1.5)
        while not inner:
            with contextlib.suppress(TimeoutError):
                near.recv(1)
        if inner != [0]:
            near.close()
            os.waitpid(inner[0], 0)
            os._exit(0)
        near.sendall(b"from the grandchild")
        near.close()
        time.sleep(0.3)
        os._exit(0)

    with forked(child):
        near.close()
        assert read_to_eof(far) == b"from the grandchild"
