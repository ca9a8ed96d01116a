"""Channels: messages over a connected stream socket, in shared memory and as frames, on threads and on both loops."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.pairs import SECONDS, KernelSocket, until

from fastsock import AsyncChannel, Channel, channel_ends, new_event_loop

from .test_groups import child

PATHS = {"unix": (True, True), "tcp": (False, True), "frames on unix": (True, False), "frames on tcp": (False, False)}
"""Whether the socket is a unix one, and whether the ends have memory in common."""


def sockets(unix: bool) -> tuple[socket.socket, socket.socket]:
    if unix:
        return socket.socketpair()
    with KernelSocket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = KernelSocket()
        near.connect(listener.getsockname())
        return near, listener.accept()[0]


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    unix, shared = PATHS[request.param]
    if not shared:
        monkeypatch.setattr(channel_ends, "_where", lambda sock: channel_ends.NOWHERE)
    return unix, shared


@pytest.fixture
def pair(path: tuple[bool, bool]) -> Iterator[tuple[Channel, Channel]]:
    near, far = map(Channel, sockets(path[0]))
    near.settimeout(SECONDS)
    far.settimeout(SECONDS)
    with near, far:
        yield near, far


def send(channel: Channel, data: bytes, times: int, timeout: float = SECONDS) -> None:
    for _ in range(times):
        channel.send(data, timeout)


def test_messages_come_whole_and_in_order(pair: tuple[Channel, Channel], path: tuple[bool, bool]) -> None:
    near, far = pair
    sent = [os.urandom(length) for length in (0, 1, 100, 5000, 70_000, 3_000_000, 10)]
    for turn in range(3):
        sender = threading.Thread(target=lambda: [near.send(data) for data in sent])
        sender.start()
        assert [bytes(far.receive()) for _ in sent] == sent
        sender.join()
        far.send(b"answer %d" % turn)
        assert bytes(near.receive()) == b"answer %d" % turn
    assert (near.shared, far.shared) == (path[1], path[1])


def test_both_ends_write_at_once(pair: tuple[Channel, Channel]) -> None:
    def write(channel: Channel) -> None:
        for i in range(300):
            channel.send(b"%d " % i * 1000)

    writers = [threading.Thread(target=write, args=(channel,)) for channel in pair]
    for writer in writers:
        writer.start()
    for i in range(300):
        for channel in pair:
            assert bytes(channel.receive()) == b"%d " % i * 1000
    for writer in writers:
        writer.join()


def test_lent_memory(pair: tuple[Channel, Channel]) -> None:
    near, far = pair
    for turn in range(5):
        with near.lend(5000) as lent:
            memoryview(lent)[:2] = b"%02d" % turn
        with pytest.raises(KeyError), near.lend(5000):
            raise KeyError
        with far.receive() as message:
            assert (len(message), bytes(memoryview(message)[:2])) == (5000, b"%02d" % turn)


def test_a_message_may_be_larger_than_what_is_on_its_way(path: tuple[bool, bool]) -> None:
    near, far = (Channel(sock, size=1 << 16, max_message=8 << 20) for sock in sockets(path[0]))
    with near, far:
        data = os.urandom(8 << 20)
        sender = threading.Thread(target=lambda: [near.send(data) for _ in range(20)])
        sender.start()
        assert all(bytes(far.receive(SECONDS)) == data for _ in range(20))
        sender.join()
        with pytest.raises(ValueError, match="more than max_message"):
            near.send(bytes((8 << 20) + 1))


def test_what_the_other_end_takes_counts(path: tuple[bool, bool]) -> None:
    near, far = sockets(path[0])
    with Channel(near, max_message=1 << 20) as a, Channel(far, max_message=1000) as b:
        a.send(b"x")
        assert bytes(b.receive(SECONDS)) == b"x"
        with pytest.raises(ValueError, match="more than max_message"):
            a.send(bytes(1001), SECONDS)


def test_the_end_comes_after_the_messages(pair: tuple[Channel, Channel]) -> None:
    near, far = pair
    near.send(b"1")
    assert bytes(far.receive()) == b"1"
    for _ in range(20):
        near.send(b"more" * 1000)
    near.close()
    assert [bytes(message) for message in far] == [b"more" * 1000] * 20
    with pytest.raises(EOFError):
        far.receive()
    with pytest.raises(ValueError, match="closed"):
        near.receive()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        send(far, b"nobody reads", 3)


class ReadAtOnce:
    """The membership by which a channel sends. The other end reads the message and closes before `send` returns."""

    def __init__(self, member: Any, far: Channel) -> None:
        self.member, self.far, self.members = member, far, member.members

    def send(self, data: bytes, timeout: float | None) -> None:
        self.member.send(data, timeout)
        self.got = bytes(self.far.receive())
        self.far.close()

    def close(self) -> None:
        self.member.close()


def test_an_end_that_has_read_the_message_and_closed_has_read_it() -> None:
    near, far = map(Channel, sockets(True))
    with near, far:
        for one, other in ((near, far), (far, near)):
            one.send(b"x", SECONDS)
            other.receive(SECONDS)
        reader: Any = ReadAtOnce(near._ends.out, far)
        near._ends.out = reader
        near.send(b"the last one", SECONDS)
        assert reader.got == b"the last one"
        with pytest.raises(BrokenPipeError):
            near.send(b"nobody reads", SECONDS)


def test_a_peer_that_is_killed(path: tuple[bool, bool]) -> None:
    near, far = sockets(path[0])

    def serve() -> None:
        near.close()
        with Channel(far) as channel:
            for message in channel:
                channel.send(message)

    with child(serve, status=None) as process:
        far.close()
        with Channel(near) as channel:
            for i in range(10):
                channel.send(b"%d" % i * 3000)
                assert bytes(channel.receive(SECONDS)) == b"%d" % i * 3000
            os.kill(process, signal.SIGKILL)
            with pytest.raises((EOFError, ConnectionResetError)):
                channel.receive(SECONDS)
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                send(channel, bytes(3000), 2000)


def test_a_reader_that_does_not_read(pair: tuple[Channel, Channel], path: tuple[bool, bool]) -> None:
    """Of frames a part has been sent by then, so the channel is of no use any more."""
    near, far = pair
    near.send(b"x")
    far.receive()
    far.send(b"x")
    near.receive()
    with pytest.raises(TimeoutError):
        send(near, bytes(1 << 20), 1000, timeout=0.05)
    with pytest.raises(TimeoutError if path[1] else ValueError):
        near.receive(0.01)


# ---- peers that are not what they seem ---------------------------------------------------------------------------


@contextlib.contextmanager
def stranger(sent: bytes) -> Iterator[Channel]:
    near, far = socket.socketpair()
    with far, Channel(near) as channel:
        far.sendall(sent)
        yield channel


GREETING = channel_ends.GREETING.pack(channel_ends.MAGIC, bytes(16), os.geteuid(), 0, 1 << 20)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", "no fastsock.Channel"),
        (GREETING + struct.pack("<QQ", 0, 1 << 40), "no channel sends"),
        (GREETING + struct.pack("<QQ", 77, 0), "no channel sends"),
        (GREETING + struct.pack("<QQ", 1, 5), "no channel sends"),
        (GREETING + struct.pack("<QQ", 3, 0), "no channel sends"),
    ],
)
def test_a_peer_that_is_no_channel(sent: bytes, words: str) -> None:
    with stranger(sent) as channel:
        with pytest.raises(ConnectionAbortedError, match=words):
            channel.receive(SECONDS)
        with pytest.raises(ValueError, match="closed"):
            channel.send(b"x")


def test_a_group_that_is_not_there_means_frames() -> None:
    greeting = channel_ends.GREETING.pack(channel_ends.MAGIC, os.urandom(16), os.geteuid(), 1, 1 << 20)
    with stranger(greeting + struct.pack("<QQ", 2, 0) + struct.pack("<QQ", 0, 3) + b"abc") as channel:
        assert bytes(channel.receive(SECONDS)) == b"abc"
        assert not channel.shared


# ---- asyncio -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_channels_of_asyncio(loop: str, path: tuple[bool, bool]) -> None:
    async def body() -> None:
        near, far = map(AsyncChannel, sockets(path[0]))

        async def serve() -> None:
            async for message in far:
                await far.send(message)

        async with near, far:
            server = asyncio.create_task(serve())
            for i in range(100):
                data = b"%d" % i * (i * i)
                if i % 2:
                    await near.send(data)
                else:
                    async with near.lend(len(data)) as lent:
                        memoryview(lent)[:] = data
                assert bytes(await near.receive()) == data
            assert near.shared == path[1]
            with pytest.raises(KeyError):
                async with near.lend(10):
                    raise KeyError
            burst = [asyncio.create_task(near.send(b"%d" % i)) for i in range(1000)]
            assert [bytes(await near.receive()) for _ in range(1000)] == [b"%d" % i for i in range(1000)]
            await asyncio.gather(*burst)
            near.close()
            await server
            with pytest.raises(EOFError):
                await far.receive()

    run(loop, body)


def run(loop: str, body: Callable[[], Any]) -> None:
    made = new_event_loop(loop)
    try:
        made.run_until_complete(asyncio.wait_for(body(), 2 * SECONDS))
    finally:
        made.close()


def test_a_closed_channel_leaves_nothing() -> None:
    near, far = map(Channel, socket.socketpair())
    near.send(b"x")
    far.receive(SECONDS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        a, b = map(Channel, socket.socketpair())
        a.send(b"x")
        assert bytes(b.receive(SECONDS)) == b"x"
        a.close()
        b.close()
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, "their descriptors are closed")
    near.close()
    far.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("what", ["send", "lend", "receive"])
def test_a_task_notices_that_the_other_end_is_gone(loop: str, path: tuple[bool, bool], what: str) -> None:
    """It was killed, and a task waits for it; or comes to wait."""
    near, far = sockets(path[0])

    def begin() -> None:
        near.close()
        with Channel(far) as channel:
            channel.send(b"x", SECONDS)
            channel.receive(SECONDS)
            signal.pause()

    async def goes_on(channel: AsyncChannel) -> None:
        while True:
            if what == "receive":
                await channel.receive()
            elif what == "send":
                await channel.send(bytes(100_000))
            else:
                async with channel.lend(100_000):
                    pass

    async def body(process: int) -> None:
        async with AsyncChannel(near) as channel:
            await channel.receive()
            await channel.send(b"x")
            asyncio.get_running_loop().call_later(0.2, os.kill, process, signal.SIGKILL)
            with pytest.raises((BrokenPipeError, ConnectionResetError, EOFError)):
                await goes_on(channel)

    with child(begin, status=None) as process:
        far.close()
        run(loop, lambda: body(process))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_close_ends_the_tasks_that_wait(loop: str, path: tuple[bool, bool]) -> None:
    async def body() -> None:
        near, far = map(AsyncChannel, sockets(path[0]))
        async with near, far:
            for one, other in ((near, far), (far, near)):
                await one.send(b"x")
                await other.receive()
            if not path[1]:
                tasks = [asyncio.create_task(near.receive()), asyncio.create_task(near.send(bytes(10_000_000)))]
            else:
                tasks = [asyncio.create_task(near.receive())]
            await asyncio.sleep(0.05)
            near.close()
            for task in tasks:
                with pytest.raises(ValueError, match="closed"):
                    await task

    run(loop, body)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_both_ends_send_what_the_stream_cannot_hold(loop: str, path: tuple[bool, bool]) -> None:
    """Tasks that receive wait for no task that sends."""

    async def body() -> None:
        near, far = map(AsyncChannel, sockets(path[0]))
        data = os.urandom(5_000_000)
        async with near, far:
            senders = [asyncio.create_task(each.send(data)) for each in (near, far) for _ in range(5)]
            for _ in range(5):
                assert bytes(await near.receive()) == data
                assert bytes(await far.receive()) == data
            await asyncio.gather(*senders)

    run(loop, body)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_send_that_is_cancelled_leaves_whole_messages(loop: str, path: tuple[bool, bool]) -> None:
    async def body() -> None:
        near, far = map(AsyncChannel, sockets(path[0]))
        async with near, far:
            data = bytearray(b"1" * 8_000_000)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(near.send(data) for _ in range(20))), 0.2)
            data[:] = b"2" * 8_000_000
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(near.receive(), 0.05)
            last = asyncio.create_task(near.send(b"last"))
            while (message := bytes(await far.receive())) != b"last":
                assert message == b"1" * 8_000_000
            await last

    run(loop, body)


def test_close_ends_a_thread_that_waits(pair: tuple[Channel, Channel]) -> None:
    near, far = pair
    far.send(b"x")
    near.receive()
    told: list[str] = []

    def wait() -> None:
        try:
            near.receive()
        except ValueError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    threading.Event().wait(0.05)
    near.close()
    thread.join(SECONDS)
    assert told == ["the channel is closed"] or told == ["the membership is closed"]


def test_empty_and_strange_buffers(pair: tuple[Channel, Channel]) -> None:
    near, far = pair
    for _ in range(3):  # by frames, and in the group
        for data in (b"", bytearray(), memoryview(b"abcdef")[::1], array.array("d", [1.0, 2.0]), array.array("d")):
            near.send(data)
            assert bytes(far.receive()) == bytes(data)
        with pytest.raises((BufferError, TypeError)):
            near.send(memoryview(b"abcdef")[::2])
        with pytest.raises(TypeError):
            near.send("text")  # type: ignore[arg-type]
        far.send(b"x")
        near.receive()


def test_small_frames_wait_for_no_acknowledgement() -> None:
    """On kernel TCP, where the second half of a frame would (RFC 896)."""
    near, far = sockets(False)
    with Channel(near) as a, Channel(far):
        assert a._ends.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
