"""Channels behind forks: parent and child share an end as they share its socket, whenever the fork came."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from harness.pairs import SECONDS, until

from fastsock import Channel, channel_ends

from .test_channels import PATHS, sockets
from .test_groups import child


@pytest.fixture(params=PATHS)
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Channel, Channel]]:
    unix, shared = PATHS[request.param]
    if not shared:
        monkeypatch.setattr(channel_ends, "_where", lambda sock: channel_ends.NOWHERE)
    near, far = map(Channel, sockets(unix))
    near.settimeout(SECONDS)
    far.settimeout(SECONDS)
    with near, far:
        yield near, far


def nothing(near: Channel, far: Channel) -> None:
    """Neither end has seen anything of the other."""


def greeted(near: Channel, far: Channel) -> None:
    far.send(b"first")
    assert bytes(near.receive()) == b"first"


def answered(near: Channel, far: Channel) -> None:
    greeted(near, far)
    near.send(b"second")
    assert bytes(far.receive()) == b"second"


def settled(near: Channel, far: Channel) -> None:
    for _ in range(3):
        answered(near, far)


moments = pytest.mark.parametrize("moment", [nothing, greeted, answered, settled])
Moment = Callable[[Channel, Channel], None]


@moments
def test_a_child_takes_over(pair: tuple[Channel, Channel], moment: Moment) -> None:
    """As a server that forks for each connection."""
    near, far = pair
    moment(near, far)

    def serve() -> None:
        far.close()
        for message in near:
            near.send(message)

    with child(serve):
        near.close()
        for length in (0, 1, 5000, 300_000, 3):
            data = os.urandom(length)
            far.send(data)
            assert bytes(far.receive()) == data
        far.close()


@moments
def test_each_message_goes_to_one_of_them(pair: tuple[Channel, Channel], moment: Moment) -> None:
    near, far = pair
    moment(near, far)

    def read() -> None:
        while (message := bytes(near.receive())) != b"end":
            near.send(b"child " + message)

    with child(read):
        sent = [b"%d " % i * (1 + i % 7 * 2000) for i in range(300)]
        writer = threading.Thread(target=lambda: [far.send(data) for data in [*sent, b"end", b"end"]])
        writer.start()
        answers: list[bytes] = []
        reader = threading.Thread(target=lambda: answers.extend(bytes(far.receive()) for _ in sent))
        reader.start()
        while (message := bytes(near.receive())) != b"end":
            near.send(b"parent " + message)
        reader.join()
        writer.join()
    assert sorted(answer.partition(b" ")[2] for answer in answers) == sorted(sent)


@moments
def test_both_write_whole_messages(pair: tuple[Channel, Channel], moment: Moment) -> None:
    near, far = pair
    moment(near, far)

    def write(what: bytes) -> None:
        for i in range(100):
            near.send(what * (1 + i * 1000))

    with child(lambda: write(b"c")):
        writer = threading.Thread(target=write, args=(b"p",))
        writer.start()
        got = [bytes(far.receive()) for _ in range(200)]
        writer.join()
    for what in b"cp":
        assert [len(each) for each in got if each[0] == what] == [1 + i * 1000 for i in range(100)]
        assert all(set(each) == {what} for each in got if each[0] == what)


@moments
def test_the_end_comes_to_all(pair: tuple[Channel, Channel], moment: Moment) -> None:
    near, far = pair
    moment(near, far)

    def end() -> None:
        far.close()
        with pytest.raises(EOFError):
            near.receive()

    with child(end):
        far.close()
        with pytest.raises(EOFError):
            near.receive()


@moments
def test_who_waits_may_be_killed(pair: tuple[Channel, Channel], moment: Moment) -> None:
    near, far = pair
    moment(near, far)
    for i in range(10):
        with child(near.receive, status=None) as process:
            time.sleep(0.002 * i)
            os.kill(process, signal.SIGKILL)
        far.send(b"for the parent")
        assert bytes(near.receive()) == b"for the parent"


def test_a_fork_while_a_thread_waits(pair: tuple[Channel, Channel]) -> None:
    near, far = pair
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(bytes(near.receive())))
    thread.start()
    time.sleep(0.05)

    def answer() -> None:
        near.send(b"from the child")
        assert bytes(near.receive()) == b"2"

    with child(answer):
        assert bytes(far.receive()) == b"from the child"
        far.send(b"1" if got else b"2")
        thread.join(0.2)
        far.send(b"2")
    far.send(b"2")
    thread.join(SECONDS)
    assert got == [b"2"]


def test_one_begins_to_read_and_the_other_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that comes in pieces."""
    monkeypatch.setattr(channel_ends, "_where", lambda sock: channel_ends.NOWHERE)
    a, b = socket.socketpair()
    frame = struct.pack("<QQ", 0, 30_000) + b"x" * 30_000
    with Channel(a) as near, b:
        near.settimeout(SECONDS)
        b.sendall(channel_ends.GREETING.pack(channel_ends.MAGIC, bytes(16), 0, 0, 1 << 20) + struct.pack("<QQ", 2, 0))

        def turn(begins: Callable[[], object], ends: Callable[[], object]) -> None:
            b.sendall(frame[:10_000])
            begins()
            b.sendall(frame[10_000:20_000])
            begins()
            b.sendall(frame[20_000:])
            ends()

        def late() -> None:
            with pytest.raises(TimeoutError):
                near.receive(0.05)

        def whole() -> None:
            assert bytes(near.receive()) == frame[16:]

        def in_child(body: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                with child(body):
                    pass

            return run

        turn(in_child(late), whole)
        turn(late, in_child(whole))
        turn(in_child(late), in_child(whole))
        turn(late, whole)


def test_who_is_killed_in_the_middle_of_a_frame_ends_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could tell where the next one begins."""
    monkeypatch.setattr(channel_ends, "_where", lambda sock: channel_ends.NOWHERE)
    near, far = map(Channel, socket.socketpair())
    with near, far:
        near.send(b"x", SECONDS)
        far.receive(SECONDS)
        with child(lambda: near.send(bytes(10_000_000)), status=None) as process:
            until(lambda: near._ends.writes, "it has begun to write")
            with pytest.raises(TimeoutError):
                near.send(b"waits for its turn", 0.2)
            os.kill(process, signal.SIGKILL)
        with pytest.raises(ConnectionResetError, match="in the middle of a message"):
            near.send(b"cannot follow", SECONDS)
        with pytest.raises(ConnectionResetError, match="in the middle of a message"):
            far.receive(SECONDS)


def test_processes_of_multiprocessing() -> None:
    """A pool of workers behind one channel."""
    near, far = map(Channel, socket.socketpair())
    near.settimeout(SECONDS)
    far.settimeout(SECONDS)

    def work() -> None:
        with contextlib.suppress(EOFError):
            while True:
                with near.receive() as message:
                    near.send(b"%d" % sum(memoryview(message)))

    workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(4)]
    with near, far:
        for worker in workers:
            worker.start()
        for i in range(200):
            far.send(bytes([1]) * i * 20)
        assert sorted(int(bytes(far.receive())) for _ in range(200)) == [i * 20 for i in range(200)]
        for worker in workers:
            worker.terminate()
            worker.join()


def test_a_child_leaves_no_descriptor_of_its_parents(pair: tuple[Channel, Channel]) -> None:
    near, far = pair
    settled(near, far)

    def close() -> None:
        before = len(os.listdir("/proc/self/fd"))
        near.close()
        far.close()
        until(lambda: len(os.listdir("/proc/self/fd")) < before - 3, "their descriptors are closed")

    with child(close):
        pass
    near.send(b"still there")
    assert bytes(far.receive()) == b"still there"
