"""`select.select` and `select.poll` that ask connections on the ring in memory (the setting ``ready_on_ring``) say what
the kernel's would say. So do the selectors that are made of them.

No descriptor is handed out here: calls name socket objects.
"""

import contextlib
import errno
import inspect
import os
import random
import select
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP
from typing import Any

import pytest
from pairs import (
    KINDS,
    SECONDS,
    Pair,
    Task,
    eventually,
    fill,
    make_pair,
    move,
    names_of,
    number_of,
    pattern,
    payload,
    read_exactly,
    socket_at,
    until,
)

from differential.test_readiness import STATES

pytestmark = pytest.mark.usefixtures("own_settings")

KERNEL = {"select": select.select, "poll": select.poll}
"""The originals, taken before any test patches the module."""


@pytest.fixture(params=["kernel", "ring", "ring-nopoll", "midstream"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair of a patched program; the kernel's own pair waits in the kernel's own calls."""
    with contextlib.ExitStack() as stack:
        if request.param != "kernel":
            import fastsock

            fastsock.patch(ready_on_ring=1, **KINDS[request.param].settings)
            stack.callback(fastsock.unpatch)
        yield stack.enter_context(make_pair(request.param))


def settle_path(pair: Pair) -> None:
    """Where the kind moves it is on the ring from here on."""
    if KINDS[pair.kind].moves:
        move(*pair)


def is_exposed(sock: socket.socket) -> bool:
    endpoint = getattr(sock, "_endpoint", None)
    return endpoint is not None and endpoint.exposed


def owner_of(sock: socket.socket) -> Any:
    """How a set of this process has the connection, or None."""
    return getattr(getattr(sock, "_endpoint", None), "member", None)


# The calls. Each says in words what one socket is ready for.


def by_select(sock: socket.socket, events: int = POLLIN, seconds: float | None = SECONDS) -> str:
    asked = [[sock] if events & event else [] for event in (POLLIN, POLLOUT, POLLPRI)]
    found = select.select(*asked, seconds)
    assert all(ready in ([], [sock]) for ready in found)
    return names_of(sum(event for event, ready in zip((POLLIN, POLLOUT, POLLPRI), found, strict=True) if ready))


def by_poll(sock: socket.socket, events: int = POLLIN, seconds: float | None = SECONDS) -> str:
    poll = select.poll()
    poll.register(sock, events)
    return names_of(sum(mask for _, mask in poll.poll(None if seconds is None else seconds * 1000)))


def by_selector(kind: type[selectors.BaseSelector]) -> Callable[..., str]:
    def wait(sock: socket.socket, events: int = POLLIN, seconds: float | None = SECONDS) -> str:
        with kind() as selector:
            wanted = (selectors.EVENT_READ if events & POLLIN else 0) | (
                selectors.EVENT_WRITE if events & POLLOUT else 0
            )
            selector.register(sock, wanted)
            found = sum(mask for _, mask in selector.select(seconds))
        return names_of(
            (POLLIN if found & selectors.EVENT_READ else 0) | (POLLOUT if found & selectors.EVENT_WRITE else 0)
        )

    return wait


CALLS: dict[str, Callable[..., str]] = {
    "select": by_select,
    "poll": by_poll,
    "SelectSelector": by_selector(selectors.SelectSelector),
    "PollSelector": by_selector(selectors.PollSelector),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def said_by_select(mask: int, asked: int) -> str:
    """What the kernel's select makes of a mask (fs/select.c)."""
    return names_of(
        (POLLIN if mask & (POLLIN | POLLHUP | POLLERR) and asked & POLLIN else 0)
        | (POLLOUT if mask & (POLLOUT | POLLERR) and asked & POLLOUT else 0)
        | (mask & asked & POLLPRI)
    )


@pytest.mark.parametrize("name", STATES)
def test_the_table(pair: Pair, name: str) -> None:
    build, mask, _ = STATES[name]
    sock, peer = pair
    settle_path(pair)
    build(sock, peer)
    every = POLLIN | POLLOUT | POLLRDHUP | POLLPRI
    eventually(lambda: by_poll(sock, every, 0), names_of(mask))
    for asked in (0, POLLIN, POLLOUT, POLLRDHUP, POLLIN | POLLRDHUP, every):
        assert by_poll(sock, asked, 0) == names_of(mask & (asked | POLLHUP | POLLERR))
        assert by_poll(sock, asked, 0.01) == names_of(mask & (asked | POLLHUP | POLLERR))
    for asked in (POLLIN, POLLOUT, POLLPRI, POLLIN | POLLOUT | POLLPRI):
        assert by_select(sock, asked, 0) == said_by_select(mask, asked)
        assert by_select(sock, asked, 0.01) == said_by_select(mask, asked)
    assert not is_exposed(sock)


@each_call
def test_data_wakes_a_sleeper(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    for number in range(20):
        waiting = Task(call, near).until_asleep()
        far.sendall(b"data%d" % number)
        assert waiting.result() == "IN"
        assert call(near, POLLIN, 0) == "IN"
        assert near.recv(100) == b"data%d" % number
        assert call(near, POLLIN, 0) == "none"
    assert not is_exposed(near)


@each_call
def test_room_wakes_a_sleeper(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    for _ in range(3):
        sent = fill(near)
        waiting = Task(call, near, POLLOUT).until_asleep()
        assert read_exactly(far, sent) == pattern(sent)
        assert waiting.result() == "OUT"
    assert not is_exposed(near)


@each_call
@pytest.mark.parametrize("kind", ["ring", "midstream"])
def test_who_sleeps_while_the_connection_moves(kind: str, call: Callable[..., str]) -> None:
    import fastsock

    fastsock.patch(ready_on_ring=1, **{**KINDS[kind].settings, "move_after": 6})
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as near,
            listener.accept()[0] as far,
        ):
            for number in range(60):
                waiting = Task(call, near).until_asleep()
                near.sendall(b"ask")
                assert read_exactly(far, 3) == b"ask"
                far.sendall(b"%3d" % number)
                assert waiting.result() == "IN"
                assert near.recv(3) == b"%3d" % number
            assert fastsock.path_of(near).path == "ring"
            assert not is_exposed(near)
    finally:
        fastsock.unpatch()


@each_call
def test_a_thread_takes_a_connection_over_from_one_that_waits_no_more(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    for number in range(5):
        assert call(near, POLLIN, 0.001) == "none"
        waiting = Task(call, near).until_asleep()
        far.sendall(b"%d" % number)
        assert waiting.result() == "IN"
        assert near.recv(10) == b"%d" % number
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ)
            assert selector.select(0) == []
            far.sendall(b"x")
            assert selector.select(SECONDS)
            assert near.recv(10) == b"x"
    assert not is_exposed(near)


@each_call
@pytest.mark.parametrize("other", [*CALLS, "epoll"])
def test_two_threads_that_wait_for_one_connection(pair: Pair, call: Callable[..., str], other: str) -> None:
    near, far = pair
    settle_path(pair)
    also = CALLS.get(other) or by_selector(selectors.EpollSelector)
    for _ in range(3):
        first = Task(call, near).until_asleep()
        second = Task(also, near).until_asleep()
        far.sendall(b"both")
        assert (first.result(), second.result()) == ("IN", "IN")
        assert near.recv(10) == b"both"
        assert call(near, POLLIN, 0) == also(near, POLLIN, 0) == "none"


@each_call
def test_one_thread_waits_for_data_and_one_for_room(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    sent = fill(near)
    room = Task(call, near, POLLOUT).until_asleep()
    data = Task(call, near, POLLIN).until_asleep()
    assert read_exactly(far, sent) == pattern(sent)
    assert room.result() == "OUT"
    far.sendall(b"x")
    assert data.result() == "IN"
    assert near.recv(10) == b"x"


@each_call
def test_a_number_that_is_handed_out_while_somebody_sleeps(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    waiting = Task(call, near).until_asleep()
    with select.epoll() as epoll:
        epoll.register(near.fileno(), POLLIN)
        far.sendall(b"x")
        assert waiting.result() == "IN"
        assert epoll.poll(SECONDS) == [(near.fileno(), POLLIN)]
        assert near.recv(10) == b"x"
        assert call(near, POLLIN, 0) == "none"
        assert epoll.poll(0) == []


@each_call
def test_a_connection_that_is_detached_while_somebody_sleeps(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    waiting = Task(call, near).until_asleep()
    number = near.detach()
    try:
        far.sendall(b"x")
        assert waiting.result() == "IN"
        assert os.read(number, 10) == b"x"
    finally:
        os.close(number)


def test_one_that_is_closed_while_somebody_sleeps_on_others_too(pair: Pair) -> None:
    settle_path(pair)
    with make_pair(pair.kind) as other:
        settle_path(other)
        near, far = pair
        waiting = Task(select.select, [near, other.near], [], [], SECONDS).until_asleep()
        far.sendall(b"unread")  # so that the kernel's own has a reason to return, too
        eventually(waiting.is_alive, False)
        assert waiting.result()[0] == [near]
        near.close()
        waiting = Task(select.select, [other.near], [], [], SECONDS).until_asleep()
        other.far.sendall(b"x")
        assert waiting.result()[0] == [other.near]


def test_a_number_that_is_closed_and_used_again(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        poll.register(near, POLLIN)
        assert poll.poll(0) == []
        listener = stack.enter_context(type(near)())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        number = number_of(near)
        near.close()
        until(lambda: poll.poll(SECONDS * 1000) == [(number, select.POLLNVAL)], "nobody has the number")
        again = socket_at(number, type(near), stack)
        assert poll.poll(0) == [(number, POLLHUP)]
        again.connect(listener.getsockname())
        other = stack.enter_context(listener.accept()[0])
        settle_path(Pair(again, other, pair.kind))
        assert poll.poll(0) == []
        waiting = Task(poll.poll).until_asleep()
        other.sendall(b"new")
        assert waiting.result() == [(number, POLLIN)]
    assert far.recv(10) == b""


@each_call
def test_other_descriptors_in_the_same_call(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    reads, writes = os.pipe()
    try:
        for _ in range(5):
            waiting = Task(select.select, [near, reads], [writes], [], SECONDS)
            assert waiting.result() == ([], [writes], [])
            waiting = Task(select.select, [near, reads], [], [], SECONDS).until_asleep()
            os.write(writes, b"x")
            assert waiting.result()[0] == [reads]
            far.sendall(b"x")
            eventually(lambda: select.select([reads, near], [], [], SECONDS)[0], [reads, near])
            assert os.read(reads, 10) == near.recv(10) == b"x"
            waiting = Task(select.select, [near, reads], [], [], SECONDS).until_asleep()
            far.sendall(b"x")
            assert waiting.result()[0] == [near]
            assert near.recv(10) == b"x"
        assert call(near, POLLIN, 0) == "none"
    finally:
        os.close(reads)
        os.close(writes)


@each_call
@pytest.mark.parametrize("who", ["child", "parent", "both"])
@pytest.mark.parametrize("asleep", [True, False])
def test_a_fork(pair: Pair, call: Callable[..., str], who: str, asleep: bool) -> None:
    near, far = pair
    settle_path(pair)
    assert call(near, POLLIN, 0.001) == "none"
    waiting = Task(call, near).until_asleep() if asleep else None
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            signal.alarm(SECONDS)
            status = 0 if who == "parent" or call(near) == "IN" else 2
        os._exit(status)
    time.sleep(0.05)
    far.sendall(b"after the fork")
    if who != "child" and waiting is None:
        assert call(near) == "IN"
    assert os.waitpid(child, 0)[1] == 0
    if waiting is not None:
        assert waiting.result() == "IN"
    assert near.recv(100) == b"after the fork"
    waiting = Task(call, near).until_asleep()
    far.sendall(b"again")
    assert waiting.result() == "IN"
    assert near.recv(100) == b"again"
    assert call(near, POLLIN, 0) == "none"


def test_a_fork_beside_a_connection_that_the_child_closes(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    assert by_select(near, POLLIN, 0.001) == "none"
    assert owner_of(near) is not None or pair.kind == "kernel"
    child = os.fork()
    if not child:
        near.close()
        far.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    waiting = Task(by_select, near).until_asleep()
    far.sendall(b"x")
    assert waiting.result() == "IN"
    assert not is_exposed(near)


@each_call
def test_a_fork_beside_a_busy_thread_ends_no_wait_early(pair: Pair, call: Callable[..., str]) -> None:
    settle_path(pair)

    def echo(each: Pair) -> None:
        for number in range(300):
            each.far.sendall(b"%3d" % number)
            assert call(each.near) == "IN"
            assert each.near.recv(3) == b"%3d" % number

    for _ in range(8):
        with make_pair(pair.kind) as each:
            settle_path(each)
            task = Task(echo, each)
            time.sleep(random.uniform(0, 0.01))
            child = os.fork()
            if not child:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            task.result()


@each_call
def test_a_signal_handler_that_waits_too(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    heard: list[str] = []

    def handle(*_: Any) -> None:
        heard.append(call(near, POLLIN, 0))
        heard.append(call(near, POLLOUT, 0))
        far.sendall(b"x")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        Task(lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGUSR1)))
        assert call(near) == "IN"
        assert heard == ["none", "OUT"]
        assert near.recv(10) == b"x"
    finally:
        signal.signal(signal.SIGUSR1, before)


@each_call
def test_a_signal_handler_that_raises(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)

    def handle(*_: Any) -> None:
        raise InterruptedError(errno.EINTR, "told")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        for _ in range(3):
            Task(lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGUSR1)))
            with contextlib.suppress(InterruptedError):
                assert call(near, POLLIN, SECONDS) == "none"  # (a selector says so)
            waiting = Task(call, near).until_asleep()
            far.sendall(b"x")
            assert waiting.result() == "IN"
            assert near.recv(10) == b"x"
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", ["kernel", "ring"])
@pytest.mark.parametrize("call", [*CALLS.values(), by_selector(selectors.EpollSelector)], ids=[*CALLS, "EpollSelector"])
def test_a_signal_that_comes_while_the_wait_polls(kind: str, call: Callable[..., str]) -> None:
    with contextlib.ExitStack() as stack:
        if kind != "kernel":
            import fastsock

            fastsock.patch(ready_on_ring=1, move_after=0, poll_us=300_000)
            stack.callback(fastsock.unpatch)
        pair = stack.enter_context(make_pair(kind))
        settle_path(pair)
        before = signal.signal(signal.SIGUSR1, lambda *_: pair.far.sendall(b"x"))
        stack.callback(signal.signal, signal.SIGUSR1, before)
        for _ in range(3):
            main = threading.main_thread().ident or 0
            Task(lambda main=main: (time.sleep(0.05), signal.pthread_kill(main, signal.SIGUSR1)))
            assert call(pair.near) == "IN"
            assert pair.near.recv(10) == b"x"


def test_who_does_not_wait_lets_other_threads_run(pair: Pair) -> None:
    settle_path(pair)
    steps: list[int] = []

    def work() -> None:
        for _ in range(50):
            time.sleep(0)
            steps.append(1)

    interval = sys.getswitchinterval()
    with select.epoll() as epoll:
        epoll.register(pair.near, POLLIN)
        for ask in (lambda: epoll.poll(0), lambda: select.select([pair.near], [], [], 0)):
            steps.clear()
            sys.setswitchinterval(SECONDS)  # nobody takes the turn from who does not give it
            try:
                worker = Task(work)
                end = time.monotonic() + SECONDS / 2
                while len(steps) < 50 and time.monotonic() < end:
                    ask()
            finally:
                sys.setswitchinterval(interval)
            assert len(steps) == 50
            worker.result()


@pytest.mark.parametrize("how", ["epoll", "poll", "selector"])
def test_the_number_that_a_selector_tells_of_a_nonblocking_socket(pair: Pair, how: str) -> None:
    near, far = pair
    settle_path(pair)
    near.setblocking(False)
    far.sendall(b"hello")
    if how == "selector":
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ)
            number = selector.select(SECONDS)[0][0].fd
    else:
        waiter: Any = getattr(select, how)()
        waiter.register(near, POLLIN)
        number = waiter.poll(SECONDS * 1000 if how == "poll" else SECONDS)[0][0]
        waiter.unregister(near)

    def use() -> None:
        assert os.read(number, 100) == b"hello"
        for again in (lambda: os.read(number, 100), lambda: os.readv(number, [bytearray(10)])):
            with pytest.raises(BlockingIOError):
                again()
        with pytest.raises(BlockingIOError):
            list(iter(lambda: os.write(number, bytes(65536)) and os.writev(number, [bytes(65536)]), 0))

    Task(use).result()
    assert not is_exposed(near)


@pytest.mark.parametrize("seconds", [threading.TIMEOUT_MAX, 9e9, 9.1e9, 9223372036, 2147483648.5])
def test_select_with_nearly_too_long_a_time(pair: Pair, seconds: float) -> None:
    settle_path(pair)
    pair.far.sendall(b"x")
    reads, writes = os.pipe()
    os.write(writes, b"x")
    for each in (pair.near, reads):
        assert Task(select.select, [each], [], [], seconds).result() == ([each], [], [])
    os.close(reads)
    os.close(writes)


@each_call
def test_a_time_limit(pair: Pair, call: Callable[..., str]) -> None:
    settle_path(pair)
    for seconds in (0, 0.001, 0.05):
        began = time.monotonic()
        assert call(pair.near, POLLIN, seconds) == "none"
        assert time.monotonic() - began >= seconds


def test_a_killed_peer_is_told_to_who_waits_for_room(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    far.shutdown(socket.SHUT_WR)
    assert fill(near)
    waiting = Task(by_poll, near, POLLOUT).until_asleep()
    far.close()
    assert waiting.result().startswith("OUT")
    eventually(lambda: by_poll(near, POLLOUT), "OUT|ERR|HUP")


@each_call
@pytest.mark.parametrize("sizes", [(3,), (2, 1)], ids=["at once", "in two"])  # (a third of the window is asked for)
@pytest.mark.parametrize("on_ring", [False, True], ids=["kernel", "ring"])
def test_who_waits_beside_an_urgent_byte_keeps_no_sender(
    on_ring: bool, sizes: tuple[int, ...], call: Callable[..., str]
) -> None:
    """The ring is full behind what the receiver reads, and the sender waits for POLLOUT, but for an urgent byte."""
    with contextlib.ExitStack() as stack:
        if on_ring:
            import fastsock

            fastsock.patch(ready_on_ring=1, window=4, ack_threshold=2, move_after=0)
            stack.callback(fastsock.unpatch)
        near, far = stack.enter_context(make_pair("ring" if on_ring else "kernel"))
        epoll = stack.enter_context(select.epoll())
        epoll.register(far.fileno(), POLLOUT)
        for sender, receiver in ((far, near), (near, far)):  # the answer brings all credits back
            sender.send(b"m")
            assert receiver.recv(10) == b"m"
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.setblocking(False)
        for flags in (0, 0, 0, socket.MSG_OOB):
            assert far.send(b"x", flags) == 1
        with contextlib.suppress(BlockingIOError):
            far.send(bytes(1000))
        for size in sizes:
            assert near.recv(size) == b"x" * size
        waiting = Task(call, near)
        waiting.join(0.1)
        assert epoll.poll(SECONDS)
        far.send(b"more")
        assert waiting.result() == "IN"


@pytest.mark.parametrize("kind", [selectors.SelectSelector, selectors.PollSelector])
def test_a_large_stream_both_ways(pair: Pair, kind: type[selectors.BaseSelector]) -> None:
    settle_path(pair)
    data = {sock: payload(6 << 20, seed) for seed, sock in enumerate(pair)}
    peer = dict(zip(pair, reversed(tuple(pair)), strict=True))
    sent, received = dict.fromkeys(pair, 0), {sock: bytearray() for sock in pair}
    with kind() as selector:
        for sock in pair:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while any(len(received[sock]) < len(data[peer[sock]]) for sock in pair):
            ready = selector.select(SECONDS)
            assert ready, "neither room nor data, and bytes still to come"
            for key, mask in ready:
                sock: Any = key.fileobj
                if mask & selectors.EVENT_READ:
                    received[sock] += sock.recv(100_000)
                if mask & selectors.EVENT_WRITE:
                    with contextlib.suppress(BlockingIOError):
                        sent[sock] += sock.send(memoryview(data[sock])[sent[sock] :][:150_000])
                    if sent[sock] == len(data[sock]):
                        selector.modify(sock, selectors.EVENT_READ)
    assert all(received[sock] == data[peer[sock]] for sock in pair)
    assert not any(map(is_exposed, pair))


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_ends_as_the_kernel_says(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)
    settle_path(pair)
    unread = dict.fromkeys(pair, 0)
    peer = dict(zip(pair, reversed(tuple(pair)), strict=True))
    ended: set[socket.socket] = set()  # those that have ended their stream
    for _ in range(150):
        sock = chance.choice(tuple(pair))
        act = chance.choice(("send", "send", "receive", "receive", "look", "end"))
        if act == "send" and sock not in ended:
            size = chance.choice((1, 40, 1000, 30_000))
            if unread[peer[sock]] + size < 60_000:
                sock.sendall(bytes(size))
                unread[peer[sock]] += size
        elif act == "receive" and unread[sock]:
            unread[sock] -= len(read_exactly(sock, chance.randint(1, unread[sock])))
        elif act == "end" and sock not in ended and chance.random() < 0.1:
            sock.shutdown(socket.SHUT_WR)
            ended.add(sock)
        asked = chance.choice((POLLIN, POLLOUT, POLLIN | POLLOUT))
        if all(unread[peer[sock]] < 30_000 for sock in pair):  # else there may be room or not
            for sock in pair:
                mask = (
                    POLLOUT
                    | (POLLIN if unread[sock] or peer[sock] in ended else 0)
                    | (POLLHUP if len(ended) == 2 else 0)
                )
                wait = chance.choice((0, 0, 0.001))
                eventually(
                    lambda sock=sock, asked=asked, wait=wait: by_poll(sock, asked, wait),
                    names_of(mask & (asked | POLLHUP)),
                )
                eventually(
                    lambda sock=sock, asked=asked, wait=wait: by_select(sock, asked, wait), said_by_select(mask, asked)
                )


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@each_call
def test_the_set_of_a_thread_goes_with_it(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    far.sendall(b"x")
    assert Task(call, near).result() == "IN"
    before = descriptors()
    for _ in range(20):
        task = Task(call, near)
        assert task.result() == "IN"
    eventually(lambda: descriptors() <= before, True)
    assert not is_exposed(near)


def test_more_threads_than_there_are_sets(pair: Pair) -> None:
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(make_pair(pair.kind)) for _ in range(40)]
        for each in pairs:
            settle_path(each)
        before = descriptors()
        for _ in range(2):
            waiting = [Task(by_select, each.near).until_asleep() for each in pairs]
            assert descriptors() <= before + 3 * 8  # (this process is the peer's too, and keeps what that is told)
            for each in pairs:
                each.far.sendall(b"x")
            assert [task.result() for task in waiting] == ["IN"] * len(pairs)
            assert all(each.near.recv(10) == b"x" for each in pairs)


def test_many_threads_take_each_others_connections(pair: Pair) -> None:
    pairs = [pair]
    settle_path(pair)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            select.select([each.near for each in pairs], [], [], 0.001)

    with make_pair(pair.kind) as other:
        settle_path(other)
        pairs.append(other)
        tasks = [Task(look) for _ in range(4)]
        try:
            for number in range(100):
                each = pairs[number % 2]
                each.far.sendall(b"%3d" % number)
                assert by_select(each.near) == "IN"
                assert each.near.recv(3) == b"%3d" % number
        finally:
            stop.set()
        for task in tasks:
            task.result()


# Errors and shapes


class Numbered:
    """An object with a number, as any may be."""

    def __init__(self, number: Any) -> None:
        self.number = number

    def fileno(self) -> Any:
        return self.number


WRONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "no sequence": lambda s, p, sock: s(1, [], []),
    "no descriptor": lambda s, p, sock: s([sock, "x"], [], []),
    "a negative descriptor": lambda s, p, sock: s([sock, -1], [], [], 0),
    "an object with a negative number": lambda s, p, sock: s([sock, Numbered(-1)], [], [], 0),
    "an object with no number": lambda s, p, sock: s([sock, Numbered("x")], [], [], 0),
    "too large": lambda s, p, sock: s([sock, 1 << 20], [], [], 0),
    "a closed one": lambda s, p, sock: s([sock, 999], [], [], 0),
    "a time of no kind": lambda s, p, sock: s([sock], [], [], "x"),
    "a negative time": lambda s, p, sock: s([sock], [], [], -1),
    "no time": lambda s, p, sock: s([sock], [], [], float("nan")),
    "too long a time": lambda s, p, sock: s([sock], [], [], 1e300),
    "just too long a time": lambda s, p, sock: s([sock], [], [], 9223372037),
    "a time a little negative": lambda s, p, sock: s([sock], [], [], -1e-12),
    "no end": lambda s, p, sock: s([sock], [], [], float("inf")),
    "too few arguments": lambda s, p, sock: s([sock], []),
    "poll: a time of no kind": lambda s, p, sock: p(sock).poll("x"),
    "poll: no time": lambda s, p, sock: p(sock).poll(float("nan")),
    "poll: too long a time": lambda s, p, sock: p(sock).poll(1 << 40),
    "poll: unknown to modify": lambda s, p, sock: p(sock).modify(999, 1),
    "poll: unknown to unregister": lambda s, p, sock: p(sock).unregister(999),
    "poll: no events": lambda s, p, sock: p(sock).register(sock, "x"),
    "poll: negative events": lambda s, p, sock: p(sock).register(sock, -1),
    "poll: too many events": lambda s, p, sock: p(sock).register(sock, 1 << 16),
    "poll: no descriptor": lambda s, p, sock: p(sock).register("x"),
}


def test_the_functions_are_no_methods_of_a_class_that_has_them(pair: Pair) -> None:
    class Has:
        poll = select.poll
        select = select.select

    settle_path(pair)
    pair.far.sendall(b"x")
    assert Has().select([pair.near], [], [], SECONDS) == ([pair.near], [], [])
    poll = Has().poll()
    poll.register(pair.near, POLLIN)
    assert names_of(poll.poll()[0][1]) == "IN"
    assert inspect.isbuiltin(select.select)
    assert str(inspect.signature(select.select)) == "(rlist, wlist, xlist, timeout=None, /)"
    assert str(inspect.signature(select.poll)) == "()"
    assert str(inspect.signature(poll.register)) == "(fd, eventmask=7, /)"


@pytest.mark.parametrize("pair", ["ring"], indirect=True)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_errors_are_the_kernels(pair: Pair, wrong: Callable[[Any, Any, Any], Any]) -> None:
    def with_one(make: Any) -> Callable[[Any], Any]:
        def make_poll(sock: Any) -> Any:
            poll = make()
            poll.register(sock, POLLIN)
            return poll

        return make_poll

    reads, writes = os.pipe()
    try:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - compared below
            wrong(KERNEL["select"], with_one(KERNEL["poll"]), reads)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            wrong(select.select, with_one(select.poll), pair.near)
        assert caught.type is expected.type
        assert caught.value.args == expected.value.args or expected.type is TypeError
    finally:
        os.close(reads)
        os.close(writes)


def test_the_order_and_the_objects_of_an_answer(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    far.sendall(b"x")
    near.sendall(b"x")
    eventually(lambda: select.select([near, far], [], [], SECONDS)[0], [near, far])
    assert select.select((far, near, far), {near}, [], SECONDS) == ([far, near, far], [near], [])
    assert select.select(iter([far]), [], [], SECONDS)[0] == [far]
    poll = select.poll()
    poll.register(far, POLLIN)
    poll.register(near, POLLIN)
    poll.register(far, POLLIN | POLLOUT)
    assert [mask for _, mask in poll.poll()] == [POLLIN | POLLOUT, POLLIN]


def test_a_poll_that_is_in_use(pair: Pair) -> None:
    settle_path(pair)
    poll = select.poll()
    poll.register(pair.near, POLLIN)
    waiting = Task(poll.poll).until_asleep()
    with pytest.raises(RuntimeError, match="concurrent poll"):
        poll.poll(0)
    poll.unregister(pair.near)
    pair.far.sendall(b"x")
    assert [mask for _, mask in waiting.result()] == [POLLIN]
    assert poll.poll(0) == []


@each_call
def test_a_call_that_does_not_wait_takes_no_descriptor_and_no_connection(pair: Pair, call: Callable[..., str]) -> None:
    near, far = pair
    settle_path(pair)
    with selectors.EpollSelector() as selector:
        selector.register(near, selectors.EVENT_READ)
        member = owner_of(near)
        assert selector.select(0) == []
        before = descriptors()
        far.sendall(b"x")
        assert call(near, POLLIN, 0) == "IN"
        assert call(far, POLLOUT, 0) == "OUT"
        assert descriptors() <= before
        assert owner_of(near) is member
        assert selector.select(SECONDS)
    assert near.recv(10) == b"x"
    assert not is_exposed(near)
    assert not is_exposed(far)
