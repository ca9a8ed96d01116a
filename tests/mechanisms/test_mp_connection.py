"""`multiprocessing.connection` over TCP: the same bodies on kernel TCP and on the ring.

`kind` says how: unpatched; patched and moved at once; patched, with the move in the middle; and unpatched while the
connection lives, which goes on where it is. The module was imported before patch().
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
from harness.pairs import SECONDS, KernelSocket, Task, listening, payload, reset, until

KEY = b"key"
SETTINGS = {
    "kernel": None,
    "ring": {"move_after": 0},
    "midstream": {"move_after": 2, "move_polled": 1},  # also where a test hands the number out before the move
    "unpatched": {"move_after": 0},
}


def path(connection: Connection) -> str:
    import fastsock

    return fastsock.path_of(connection).path


def move(near: Connection, far: Connection) -> None:
    def both() -> bool:
        for sender, receiver in ((near, far), (far, near)):
            sender.send_bytes(b"move")
            assert receiver.recv_bytes() == b"move"
        return path(near) == path(far) == "ring"

    until(both, "both ends are on the ring")


@contextlib.contextmanager
def pair_of(kind: str) -> Iterator[tuple[Connection, Connection]]:
    import fastsock

    settings = SETTINGS[kind]
    if settings is not None:
        fastsock.patch(**settings)
    try:
        with multiprocessing.connection.Listener(("127.0.0.1", 0), authkey=KEY) as listener:
            accepted = Task(listener.accept)
            with multiprocessing.connection.Client(listener.address, authkey=KEY) as near, accepted.result() as far:
                if kind in ("ring", "unpatched"):
                    move(near, far)
                if kind == "unpatched":
                    fastsock.unpatch()
                yield near, far
                if kind == "midstream" and not (near.closed or far.closed):
                    with contextlib.suppress(EOFError, OSError):  # a test may have ended one direction
                        move(near, far)
    finally:
        if settings is not None:
            fastsock.unpatch()


@pytest.fixture(params=SETTINGS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Connection, Connection]]:
    with pair_of(request.param) as pair:
        yield pair


Both = tuple[Connection, Connection]


@pytest.mark.parametrize("size", [0, 1, 4, 16_384, 16_385, 100_000, 3_000_000])
def test_messages_arrive_whole_and_in_order(pair: Both, size: int) -> None:
    near, far = pair
    messages = [payload(size, seed) for seed in range(3)]
    sent = Task(lambda: [near.send_bytes(message) for message in messages])
    assert [far.recv_bytes() for _ in messages] == messages
    sent.result()
    echo = Task(lambda: far.send({"size": size, "data": messages[0]}))
    assert near.recv() == {"size": size, "data": messages[0]}
    echo.result()


def test_poll_tells_of_messages_and_takes_none(pair: Both) -> None:
    near, far = pair
    assert not far.poll()
    assert not far.poll(0.05)
    assert not far.poll(-1)
    near.send("here")
    assert far.poll(SECONDS)
    assert far.poll(None)
    assert far.poll(0)
    assert far.recv() == "here"
    assert not far.poll()
    waits = Task(far.poll, None)
    near.send("later")
    assert waits.result() is True
    assert far.recv() == "later"


@pytest.mark.parametrize("unread", [False, True], ids=["end", "reset"])
def test_poll_tells_of_the_end_and_leaves_it_to_the_receive(pair: Both, unread: bool) -> None:
    near, far = pair
    waits = Task(far.poll, None)
    if unread:
        far.send("not read")
        assert near.poll(SECONDS)
    near.close()  # with a message unread: TCP resets
    assert waits.result() is True
    assert far.poll()
    with pytest.raises(ConnectionResetError if unread else EOFError):
        far.recv()


def test_wait_on_several(pair: Both) -> None:
    near, far = pair
    reader, writer = multiprocessing.Pipe(duplex=False)
    with reader, writer:
        wait = multiprocessing.connection.wait
        assert wait([far, reader], 0.05) == []
        near.send(1)
        assert wait([far, reader], SECONDS) == [far]
        assert far.recv() == 1
        writer.send(2)
        assert wait([far, reader], SECONDS) == [reader]
        near.send(3)
        until(lambda: len(wait([far, reader], SECONDS)) == 2, "both are ready")
        assert (far.recv(), reader.recv()) == (3, 2)
        later = Task(wait, [far, reader])
        near.send(4)
        assert later.result() == [far]
        assert far.recv() == 4


def test_the_calls_of_os_on_its_number(pair: Both) -> None:
    near, far = pair
    if socket.socket is KernelSocket and path(near) == "ring":
        pytest.skip("after unpatch() the calls of os are the kernel's")
    near.send_bytes(b"abc")
    assert os.read(far.fileno(), 100) == struct.pack("!i", 3) + b"abc"
    os.write(far.fileno(), struct.pack("!i", 2) + b"de")
    assert near.recv_bytes() == b"de"


def test_dropped_without_a_close(pair: Both) -> None:
    """The peer is told when nobody holds the object any more."""
    with multiprocessing.connection.Listener(("127.0.0.1", 0)) as listener:
        accepted = Task(listener.accept)
        near = multiprocessing.connection.Client(listener.address)
        with accepted.result() as far:
            for number in range(50):
                near.send(number)
                assert far.recv() == number
                far.send(number)
                assert near.recv() == number
            del near
            with pytest.raises(EOFError):
                far.recv()


def echo_all(connection: Connection) -> None:
    with contextlib.suppress(EOFError):
        while True:
            connection.send(connection.recv())


@pytest.mark.parametrize("kind", ["kernel", "ring", "midstream"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_handed_to_another_process(kind: str, method: str) -> None:
    """What lies unread goes with it."""
    with pair_of(kind) as (near, far):
        near.send("before")
        process = multiprocessing.get_context(method).Process(target=echo_all, args=(far,))
        process.start()
        far.close()
        assert near.poll(3 * SECONDS)  # an interpreter starts
        assert near.recv() == "before"
        for number in range(5):
            near.send(number)
            assert near.recv() == number
        near.close()
        process.join(SECONDS)
        assert process.exitcode == 0


def test_how_it_looks(pair: Both) -> None:
    """And connections over other sockets are the stdlib's own."""
    near, _ = pair
    with multiprocessing.connection.Listener(None, "AF_UNIX") as listener:
        accepted = Task(listener.accept)
        with multiprocessing.connection.Client(listener.address) as other, accepted.result() as its:
            assert type(other) is type(its) is Connection
            other.send(1)
            assert its.recv() == 1
    assert isinstance(near, Connection)
    assert repr(near).startswith("<multiprocessing.connection.Connection object at")
    assert (type(near).__name__, type(near).__qualname__) == ("Connection", "Connection")


def test_a_handler_runs_in_a_poll_and_what_it_raises_leaves_it(pair: Both) -> None:
    """Also what looks like an answer of the poll, or like an error of the connection."""
    near, far = pair
    errors = [TimeoutError("by the handler"), ConnectionAbortedError(103, "by the handler"), OSError("no number")]
    raised = iter(errors)

    def handle(*_: object) -> None:
        for error in raised:
            raise error
        near.send("by the handler")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        for error in (*errors, None):
            poker = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
            poker.start()
            if error is None:
                assert far.poll(SECONDS)
            else:
                with pytest.raises(type(error)) as caught:
                    far.poll(SECONDS)
                assert caught.value is error
            poker.join()
        assert far.recv() == "by the handler"
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("exchanges", [0, 1, 2, 3, 41, 42, 43])
def test_a_reset_that_a_poll_has_found_is_told(exchanges: int) -> None:
    """Whatever the next operation decides about the path."""
    import fastsock

    fastsock.patch()
    try:
        with listening(False) as listener:
            accepted = Task(listener.accept)
            with multiprocessing.connection.Client(listener.getsockname()) as near, accepted.result()[0] as far:
                for _ in range(exchanges):
                    near.send_bytes(b"x")
                    message = far.recv(5, socket.MSG_WAITALL)
                    far.sendall(message)
                    assert near.recv_bytes() == b"x"
                reset(far)
                assert near.poll(SECONDS)
                assert near.poll(0)
                with pytest.raises(ConnectionResetError):
                    near.recv()
    finally:
        fastsock.unpatch()
