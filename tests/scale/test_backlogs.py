"""Programs whose peers do not read come through wherever they do on TCP, whose buffers hold more than the ring.

The ring's spare parts take what TCP's buffers would. Nobody waits for ever, and the connection stays on the ring.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from conformance.aio.kit import LOOPS, UNTOUCHED
from harness import pairs
from harness.pairs import SECONDS, Pair, Task, fill, listening, make_pair, poll_mask, read_exactly, read_to_eof, until
from harness.processes import Program, running, settle

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

MUCH = 2_000_000
"""Bytes: more than the window holds (1 MiB), and less than the kernel does with default limits."""


payload = functools.cache(pairs.payload)
Send = Callable[[socket.socket, bytes], object]


def send_in(seconds: float | None, sock: socket.socket, data: bytes) -> None:
    sock.settimeout(seconds)
    sock.sendall(data)


blocking = functools.partial(send_in, None)


def come_through(sock: socket.socket, seed: int, send: Send = blocking) -> bytes:
    """What comes from the peer, which sends all it has first, too."""
    send(sock, payload(MUCH, seed))
    return read_exactly(sock, MUCH)


def meet_head_on(pair: Pair, send: Send = blocking) -> None:
    other = Task(come_through, pair.far, 2, send)
    assert come_through(pair.near, 1, send) == payload(MUCH, 2)
    assert other.result() == payload(MUCH, 1)
    if pair.kind == "ring":
        assert {fastsock.path_of(sock) for sock in pair} == {fastsock.Path("ring", "both directions")}


# ---- ways to send: blocking, with a timeout, and without waiting, where the program polls for room itself ----------


def asks_select(sock: socket.socket) -> Callable[[], object]:
    return functools.partial(select.select, [], [sock], [])


def asks_poll(sock: socket.socket) -> Callable[[], object]:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return poll.poll


def asks_epoll(sock: socket.socket, how: int = 0) -> Callable[[], object]:
    epoll = select.epoll()
    epoll.register(sock, select.EPOLLOUT | how)
    return epoll.poll


def hears_edges(sock: socket.socket) -> Callable[[], object]:
    return asks_epoll(sock, select.EPOLLET)


def tries_again(sock: socket.socket) -> Callable[[], object]:
    return functools.partial(time.sleep, 0.001)


Waits = Callable[[socket.socket], Callable[[], object]]


def send_without_waiting(waits: Waits, sock: socket.socket, data: bytes) -> None:
    rest = memoryview(data)
    sock.setblocking(False)
    await_room = waits(sock)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await_room()
    sock.setblocking(True)


SENDS: dict[str, Send] = {
    "blocking": blocking,
    "timeout": functools.partial(send_in, SECONDS),
    **{
        waits.__name__: functools.partial(send_without_waiting, waits)
        for waits in (asks_select, asks_poll, asks_epoll, hears_edges, tries_again)
    },
    "timeout shorter than the pause": functools.partial(send_in, 0.6),
}


@pytest.mark.parametrize("send", list(SENDS)[:-1])
def test_both_send_before_they_receive(pair: Pair, send: str) -> None:
    for _ in range(2):
        meet_head_on(pair, SENDS[send])


@pytest.mark.parametrize("send", SENDS)
def test_a_peer_that_reads_behind_the_send(pair: Pair, send: str) -> None:
    near, far = pair
    SENDS[send](near, payload(MUCH, 13))
    far.sendall(b"meanwhile")  # what comes from the end that does not read stays where it is
    assert near.recv(100) == b"meanwhile"
    assert read_exactly(far, MUCH) == payload(MUCH, 13)
    for sender, receiver in ((near, far), (far, near)):
        sender.sendall(payload(5000))
        assert read_exactly(receiver, 5000) == payload(5000)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_sends_by_sock_sendall(pair: Pair, loop: str) -> None:
    async def come_through(sock: socket.socket, seed: int) -> bytes:
        running, received = asyncio.get_running_loop(), bytearray()
        await running.sock_sendall(sock, payload(MUCH, seed))
        while len(received) < MUCH:
            received += await running.sock_recv(sock, 1 << 20)
        return bytes(received)

    async def both() -> list[bytes]:
        return list(await asyncio.gather(come_through(pair.near, 15), come_through(pair.far, 16)))

    for sock in pair:
        sock.setblocking(False)
    made = UNTOUCHED[loop]()
    try:
        assert made.run_until_complete(both()) == [payload(MUCH, 16), payload(MUCH, 15)]
    finally:
        made.close()


@pytest.mark.parametrize("waits", [("blocks", "blocks"), ("polls", "polls"), ("blocks", "polls")])
def test_all_holders_of_both_sides_send_before_they_receive(waits: tuple[str, str]) -> None:
    """Two processes have each side. All bytes come through."""
    program = """
        import mmap
        fastsock.patch(move_after=0)
        MUCH = 1_000_000
        taken = mmap.mmap(-1, 64)  # of each process: the bytes that it has read of either sender

        def send(sock, byte, polls):
            rest = memoryview(byte * MUCH)
            while rest:
                try:
                    rest = rest[sock.send(rest, socket.MSG_DONTWAIT if polls else 0):]
                except BlockingIOError:
                    select.select([], [sock], [])

        def receive(sock, values, side, first):
            counts = [0, 0]
            while sum(struct.unpack_from("4q", taken, 32 * side)) < 2 * MUCH:
                if not select.select([sock], [], [], 0.02)[0]:
                    continue
                try:
                    data = sock.recv(65536, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue  # the other holder was quicker
                counts = [count + data.count(value) for count, value in zip(counts, values)]
                # (No data: the other holder has the last bytes, and is about to count them.)
                assert sum(counts) <= 2 * MUCH
                struct.pack_into("2q", taken, 32 * side + 16 * first, *counts)

        with make_pair("ring") as pair:
            ends = tuple(pair)
            others = [os.fork()]
            side = int(not others[0])
            others = [other for other in others if other] + [os.fork()]
            first = bool(others[-1])
            ends[1 - side].close()
            send(ends[side], (b"AB", b"CD")[side][first:][:1], sys.argv[1 + first] == "polls")
            receive(ends[side], (b"CD", b"AB")[side], side, first)
            for other in others if first else ():
                assert os.waitpid(other, 0)[1] == 0
            if side or not first:
                os._exit(0)
            say(struct.unpack("8q", taken))
    """
    with running(program, *waits) as process:
        counts = ast.literal_eval(process.line(3 * SECONDS))
        assert [counts[at] + counts[at + 2] for at in (0, 1, 4, 5)] == [1_000_000] * 4


# ---- afterwards ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["by close", "by the way out"])
def test_what_comes_afterwards(pair: Pair, ends: str) -> None:
    """Bytes come in order, and descriptors are polled."""
    meet_head_on(pair)
    near, far = pair
    for size in (1, 100, 3000, 100_000, 1_000_000):
        for sender, receiver in (pair, tuple(pair)[::-1]):
            task = Task(sender.sendall, payload(size, size))
            assert read_exactly(receiver, size) == payload(size, size)
            task.result()
    assert poll_mask(far) == poll_mask(near)
    near.sendall(b"more")
    until(lambda: poll_mask(far) & select.POLLIN, "POLLIN")
    assert far.recv(100) == b"more"
    assert not poll_mask(far) & select.POLLIN
    if ends == "by close":
        near.sendall(b"last")
        near.shutdown(socket.SHUT_WR)
        assert read_to_eof(far) == b"last"
        far.sendall(b"answer")
        far.close()
        assert read_to_eof(near) == b"answer"
        return
    far.sendall(b"unread")
    with socket.socket(fileno=near.detach()) as raw:
        raw.sendall(b"raw")
        assert read_exactly(far, 3) == b"raw"
        far.sendall(b"more")
        assert read_exactly(raw, 10) == b"unreadmore"


# ---- peers in other processes, which go without reading -------------------------------------------------------------

PEER = """
    with fastsock.configure(move_after=0):
        sock = connect(int(sys.argv[1]))
        settle(sock, leads=False)
        say("ring")
        told()
        if sys.argv[2] == "sends":
            sock.sendall(bytes(2_000_000))
            assert sock.recv(1) == b"."
            say("read")
            told()
"""
ON_A_LOOP = """
    import asyncio
    async def main():
        reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
        while await reader.readexactly(1) == b"?":
            writer.write(b"r" if fastsock.path_of(writer).path == "ring" else b"t")
        writer.transport.pause_reading()
        writer.write_eof()
        say("ring")
        await asyncio.sleep(1000)
    fastsock.run(main())
"""
"""Its loop takes the byte out of the kernel's queue that would make the kernel reset the connection at its death."""


@contextlib.contextmanager
def peer_on_ring(program: str = PEER, does: str = "") -> Iterator[tuple[socket.socket, Program]]:
    """Our end, and the program at the other one."""
    with (
        fastsock.configure(move_after=0),
        listening() as listener,
        running(program, listener.getsockname()[1], does) as peer,
        listener.accept()[0] as sock,
    ):
        settle(sock)
        assert peer.line() == "ring"
        yield sock, peer


GONE = pytest.raises((ConnectionResetError, BrokenPipeError))


def test_a_peer_that_is_killed_behind_what_it_sent() -> None:
    """Small sends on the ring notice it as soon as if both directions were there."""
    with peer_on_ring(does="sends") as (sock, peer):
        peer.tell()
        assert read_exactly(sock, 2_000_000) == bytes(2_000_000)
        sock.sendall(b".")
        assert peer.line() == "read"
        peer.kill()
        with GONE:
            any(not sock.send(b"x") for _ in range(5))


@pytest.mark.parametrize("size", [1, 1000, 5000])
def test_a_sender_that_never_reads_is_told_of_a_killed_peer(size: int) -> None:
    """TCP fails the second send or so. Here it takes longer, but not for ever."""
    with peer_on_ring() as (sock, peer):
        peer.kill()
        with GONE:
            while True:  # (the test's deadline ends this)
                sock.send(bytes(size))


def test_a_blocked_sender_hears_of_a_half_closed_peers_death_and_waits_while_it_lives() -> None:
    """Whether it lives is asked of the kernel (`fs_peer_socket_state`)."""
    with peer_on_ring(ON_A_LOOP) as (sock, peer):
        assert sock.recv(1) == b""
        sending = Task(sock.sendall, payload(1 << 20) * 64).until_asleep()
        os.kill(peer.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, peer.pid, os.WSTOPPED)
        time.sleep(1.5)  # it is asked for twice a second
        assert sending.is_alive()
        os.kill(peer.pid, signal.SIGCONT)
        peer.kill()
        with GONE:
            sending.result()


def test_a_pause_of_the_reader_is_no_reason() -> None:
    """A reader that comes back in time finds the stream on the ring."""
    with make_pair("ring") as pair:
        near, far = pair
        size = fill(near)
        sender = Task(near.sendall, b"x").until_asleep()
        assert len(read_exactly(far, size + 1)) == size + 1
        sender.result()
        assert fastsock.path_of(near) == fastsock.path_of(far) == fastsock.Path("ring", "both directions")
