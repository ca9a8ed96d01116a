"""An epoll that asks connections on the ring in memory (the setting ``ready_on_ring``) says what the kernel's would
say.

No descriptor is handed out here: pairs are looked at through ``select.epoll`` and ``selectors`` alone, by their
objects.
"""

import contextlib
import functools
import gc
import os
import random
import select
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP
from typing import Any

import pytest
from pairs import (
    KINDS,
    SECONDS,
    Pair,
    Task,
    eventually,
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

from differential import test_readiness
from differential.test_readiness import STATES

ALL = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI

pytestmark = pytest.mark.usefixtures("own_settings")


@pytest.fixture(params=["kernel", "ring", "ring-nopoll", "midstream"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair of a patched program; the kernel's own pair waits in the kernel's own epoll."""
    with contextlib.ExitStack() as stack:
        if request.param != "kernel":
            import fastsock

            fastsock.patch(ready_on_ring=1, **KINDS[request.param].settings)
            stack.callback(fastsock.unpatch)
        yield stack.enter_context(make_pair(request.param))


def epoll_of(*socks: socket.socket, events: int = EPOLLIN) -> select.epoll:
    epoll = select.epoll()
    for sock in socks:
        epoll.register(sock, events)
    return epoll


def is_exposed(sock: socket.socket) -> bool:
    endpoint = getattr(sock, "_endpoint", None)
    return endpoint is not None and endpoint.exposed


def news(epoll: select.epoll, seconds: float = SECONDS) -> str:
    """The events of the one descriptor registered, in words."""
    return names_of(sum(mask for _, mask in epoll.poll(seconds)))


def settle_path(pair: Pair) -> None:
    """Where the kind moves it is on the ring from here on, and nobody polls its number."""
    if KINDS[pair.kind].moves:
        move(*pair)
        assert not is_exposed(pair.near)
        assert not is_exposed(pair.far)


def fill(sock: socket.socket) -> int:
    """As ``pairs.fill``, which asks ``select``; here ``epoll`` is asked."""
    stream, sent, refused = pattern(1 << 17), 0, 0
    with epoll_of(sock, events=EPOLLOUT) if not has_member(sock) else contextlib.nullcontext() as epoll:
        while refused < 2:
            try:
                sent += sock.send(memoryview(stream)[sent % (1 << 16) :][: 1 << 16], socket.MSG_DONTWAIT)
                refused = 0
            except BlockingIOError:
                if epoll is None:
                    time.sleep(0.05)
                refused = 0 if epoll is not None and epoll.poll(0.05) else refused + 1
    return sent


def has_member(sock: socket.socket) -> bool:
    endpoint = getattr(sock, "_endpoint", None)
    return endpoint is not None and endpoint.member is not None


@pytest.mark.parametrize("registered", ["before", "after"])
@pytest.mark.parametrize("name", STATES)
def test_the_table(pair: Pair, name: str, registered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_readiness, "fill", fill)
    build, mask, _ = STATES[name]
    sock, peer = pair
    settle_path(pair)
    with select.epoll() as epoll:
        if registered == "before":
            epoll.register(sock, ALL)
        build(sock, peer)
        if registered == "after":
            epoll.register(sock, ALL)
        eventually(lambda: news(epoll, 0), names_of(mask))
        for asked in (0, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLIN | EPOLLRDHUP, ALL):
            epoll.modify(sock, asked)
            assert news(epoll, 0) == names_of(mask & (asked | EPOLLHUP | EPOLLERR))
            assert news(epoll, 0.01) == names_of(mask & (asked | EPOLLHUP | EPOLLERR))
        assert not is_exposed(sock)


def test_both_ends_send_before_they_receive(pair: Pair) -> None:
    """More than the ring holds, without waiting in a call."""
    much = 2_000_000
    settle_path(pair)

    def come_through(sock: socket.socket, seed: int) -> bytes:
        rest = memoryview(payload(much, seed))
        sock.setblocking(False)
        with epoll_of(sock, events=EPOLLOUT) as epoll:
            while rest:
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    epoll.poll()
        sock.setblocking(True)
        return read_exactly(sock, much)

    for _ in range(2):
        other = Task(come_through, pair.far, 2)
        assert come_through(pair.near, 1) == payload(much, 2)
        assert other.result() == payload(much, 1)
        assert not any(is_exposed(sock) for sock in pair)


def test_data_wakes_a_sleeper(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll:
        for number in range(20):
            waiting = Task(news, epoll).until_asleep()
            far.sendall(b"data%d" % number)
            assert waiting.result() == "IN"
            assert news(epoll, 0) == "IN"
            assert near.recv(100) == b"data%d" % number
            assert news(epoll, 0) == "none"
        assert not is_exposed(near)


@pytest.mark.parametrize("pair", ["ring-nopoll"], indirect=True)
def test_many_sleeps_leave_one_entry_for_a_connection(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll:
        for _ in range(50):
            waiting = Task(news, epoll).until_asleep()
            far.sendall(b"x")
            assert waiting.result() == "IN"
            assert near.recv(100) == b"x"
        assert all(len(looked_at) <= 1 for looked_at in gc.get_referents(epoll) if type(looked_at) is list)


def test_room_wakes_a_sleeper(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near, events=EPOLLOUT) as epoll:
        for _ in range(3):
            sent = fill(near)
            waiting = Task(news, epoll).until_asleep()
            assert read_exactly(far, sent) == pattern(sent)
            assert waiting.result() == "OUT"


@pytest.mark.parametrize("kind", ["ring", "midstream"])
def test_who_sleeps_while_the_connection_moves(kind: str) -> None:
    import fastsock

    fastsock.patch(ready_on_ring=1, **{**KINDS[kind].settings, "move_after": 6})
    try:
        with make_pair("kernel") as _, contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            near = stack.enter_context(socket.create_connection(listener.getsockname()))
            far = stack.enter_context(listener.accept()[0])
            epoll = stack.enter_context(epoll_of(near))
            for number in range(60):
                waiting = Task(news, epoll).until_asleep()
                near.sendall(b"ask")
                assert read_exactly(far, 3) == b"ask"
                far.sendall(b"%3d" % number)
                assert waiting.result() == "IN"
                assert near.recv(3) == b"%3d" % number
            assert fastsock.path_of(near).path == "ring"
            assert not is_exposed(near)
    finally:
        fastsock.unpatch()


def test_a_change_by_another_thread_wakes_a_sleeper(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with select.epoll() as epoll:
        waiting = Task(news, epoll).until_asleep()
        far.sendall(b"here")
        epoll.register(near, EPOLLIN)
        assert waiting.result() == "IN"
        epoll.modify(near, 0)
        waiting = Task(news, epoll).until_asleep()
        epoll.modify(near, EPOLLIN | EPOLLOUT)
        assert waiting.result() == "IN|OUT"
        assert near.recv(100) == b"here"
        epoll.modify(near, EPOLLIN)
        waiting = Task(news, epoll, 1).until_asleep()
        epoll.unregister(near)
        far.sendall(b"not told")
        assert waiting.result() == "none"
        epoll.register(near, EPOLLIN)
        assert news(epoll) == "IN"


def test_all_threads_that_sleep_in_one_epoll_can_be_woken(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll:
        for _ in range(5):
            sleepers = [Task(news, epoll).until_asleep() for _ in range(3)]
            far.sendall(b"level")
            for sleeper in sleepers:
                if sleeper.is_alive():
                    sleeper.join(0.2)
            assert any(not sleeper.is_alive() for sleeper in sleepers)
            far.sendall(b" and more")
            assert [sleeper.result() for sleeper in sleepers] == ["IN"] * 3
            assert read_exactly(near, 14) == b"level and more"


def test_one_of_several_sleepers_goes_and_the_others_still_hear(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll:
        for _ in range(5):
            short, long = Task(news, epoll, 0.05), Task(news, epoll)
            assert short.result() == "none"
            long.until_asleep()
            far.sendall(b"x")
            assert long.result() == "IN"
            assert near.recv(10) == b"x"


def test_two_epolls_with_one_connection(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as first, epoll_of(near) as second:
        for _ in range(5):
            waiting = [Task(news, epoll).until_asleep() for epoll in (first, second)]
            far.sendall(b"both")
            assert [task.result() for task in waiting] == ["IN", "IN"]
            assert near.recv(10) == b"both"
            assert news(first, 0) == news(second, 0) == "none"
        first.unregister(near)
        far.sendall(b"one")
        assert news(first, 0.02) == "none"
        assert news(second) == "IN"


def test_a_connection_moves_from_one_epoll_to_another(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    for _ in range(5):
        with epoll_of(near) as epoll:
            waiting = Task(news, epoll).until_asleep()
            far.sendall(b"x")
            assert waiting.result() == "IN"
            assert near.recv(10) == b"x"
    assert not is_exposed(near)


def test_an_epoll_that_nobody_has_any_more_lets_go(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    epoll = epoll_of(near)
    del epoll
    gc.collect()
    assert not has_member(near)
    with epoll_of(near) as epoll:
        far.sendall(b"x")
        assert news(epoll) == "IN"
        assert not is_exposed(near)


@pytest.mark.parametrize("flags", [EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT])
def test_edges_and_single_shots(pair: Pair, flags: int) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near, events=EPOLLIN | flags) as epoll:
        for _ in range(5):
            far.sendall(b"x")
            assert news(epoll) == "IN"
            assert news(epoll, 0.02) == "none"
            assert near.recv(10) == b"x"
            epoll.modify(near, EPOLLIN | flags)


@pytest.mark.parametrize("how", ["fileno", "nested", "select", "poll"])
def test_a_number_that_is_polled_elsewhere_as_well(pair: Pair, how: str) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll, select.epoll() as outer:
        if how == "fileno":
            outer.register(near.fileno(), EPOLLIN)
            waiting = functools.partial(news, outer)
        elif how == "nested":
            outer.register(epoll.fileno(), EPOLLIN)
            waiting = functools.partial(news, outer)
        elif how == "select":
            waiting = lambda: "IN" if select.select([near], [], [], SECONDS)[0] else "none"  # noqa: E731
        else:
            poll = select.poll()
            poll.register(near, EPOLLIN)
            waiting = lambda: names_of(sum(mask for _, mask in poll.poll(SECONDS * 1000)))  # noqa: E731
        for _ in range(3):
            task, own = Task(waiting).until_asleep(), Task(news, epoll).until_asleep()
            far.sendall(b"x")
            assert (task.result(), own.result()) == ("IN", "IN")
            assert near.recv(10) == b"x"
            assert news(epoll, 0) == "none"


def test_a_number_that_is_closed_and_used_again(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with contextlib.ExitStack() as stack:
        epoll = stack.enter_context(epoll_of(near))
        listener = stack.enter_context(type(near)())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        number = number_of(near)
        near.close()
        assert news(epoll, 0) == "none"
        again = socket_at(number, type(near), stack)
        again.connect(listener.getsockname())
        other = stack.enter_context(listener.accept()[0])
        epoll.register(again, EPOLLIN)
        other.sendall(b"new")
        assert epoll.poll(SECONDS) == [(number, EPOLLIN)]
        assert again.recv(10) == b"new"
        settle_path(Pair(again, other, pair.kind))
        waiting = Task(news, epoll).until_asleep()
        other.sendall(b"new")
        assert waiting.result() == "IN"
    assert far.recv(10) == b""


def test_a_number_that_is_used_again_while_a_duplicate_lives(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with contextlib.ExitStack() as stack:
        epoll = stack.enter_context(epoll_of(near, events=ALL))
        listener = stack.enter_context(type(near)())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        twin = near.dup()
        assert news(epoll) == "OUT"
        near.close()
        again = stack.enter_context(type(near)())
        again.connect(listener.getsockname())
        other = stack.enter_context(listener.accept()[0])
        epoll.register(again, EPOLLIN)
        os.close(twin.detach())
        other.sendall(b"new")
        assert news(epoll) == "IN"
        assert again.recv(10) == b"new"
        assert news(epoll, 0.02) == "none"
        assert far.recv(10) == b""


def test_closing_wakes_nobody_and_takes_the_registration_away(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near, far) as epoll:
        near.close()
        assert [mask for _, mask in epoll.poll(SECONDS)] == [EPOLLIN]  # the far end's
        assert far.recv(10) == b""


def test_a_duplicate_keeps_the_registration(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll, near.dup() as twin:
        near.close()
        waiting = Task(news, epoll).until_asleep()
        far.sendall(b"x")
        assert waiting.result() == "IN"
        assert twin.recv(10) == b"x"
        assert news(epoll, 0.01) == "none"


def test_a_detached_number_stays_registered(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near, events=EPOLLIN | EPOLLOUT) as epoll:
        number = near.detach()
        try:
            far.sendall(b"x")
            eventually(lambda: news(epoll), "IN|OUT")
            assert os.read(number, 10) == b"x"
            assert news(epoll) == "OUT"
        finally:
            os.close(number)


@pytest.mark.parametrize("asleep", [True, False])
@pytest.mark.parametrize("who", ["child", "parent", "both"])
def test_a_fork_beside_a_waiting_epoll(pair: Pair, who: str, asleep: bool) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll:
        waiting = Task(news, epoll).until_asleep() if asleep else None
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                signal.alarm(SECONDS)
                status = 0 if who == "parent" or news(epoll) == "IN" else 2
            os._exit(status)
        time.sleep(0.05)
        far.sendall(b"after the fork")
        if who != "child" and waiting is None:
            assert news(epoll) == "IN"
        assert os.waitpid(child, 0)[1] == 0
        if waiting is not None:
            assert waiting.result() == "IN"
        assert near.recv(100) == b"after the fork"
        waiting = Task(news, epoll).until_asleep()
        far.sendall(b"again")
        assert waiting.result() == "IN"
        assert near.recv(100) == b"again"
        assert news(epoll, 0) == "none"


def test_forks_while_threads_make_epolls_and_drop_them(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_path(pair)
    unheard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unheard.append)
    over = threading.Event()
    interval = sys.getswitchinterval()

    def make() -> None:
        while not over.is_set():
            kept = [select.epoll() for _ in range(100)]
            del kept

    makers = [Task(make) for _ in range(2)]
    try:
        sys.setswitchinterval(1e-5)
        for _ in range(200):
            child = os.fork()
            if not child:
                os._exit(len(unheard))
            assert os.waitpid(child, 0)[1] == 0
    finally:
        sys.setswitchinterval(interval)
        over.set()
    for maker in makers:
        maker.result()
    assert unheard == []


@pytest.mark.parametrize("member", ["parent's", "child's"])
def test_a_child_that_has_the_connection_and_an_epoll_of_its_own(pair: Pair, member: str) -> None:
    near, far = pair
    settle_path(pair)
    before = epoll_of(near) if member == "parent's" else select.epoll()
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            signal.alarm(SECONDS)
            with epoll_of(near) as epoll:
                for _ in range(5):
                    assert news(epoll) == "IN"
                    near.sendall(near.recv(100).upper())
            status = 0
        os._exit(status)
    waiting = Task(news, before, 0.5)
    for _ in range(5):
        far.sendall(b"echo")
        assert read_exactly(far, 4) == b"ECHO"
    assert os.waitpid(child, 0)[1] == 0
    assert waiting.result() == ("IN" if member == "parent's" else "none")
    before.close()
    with epoll_of(near) as epoll:
        far.sendall(b"x")
        assert news(epoll) == "IN"


def test_a_killed_peer_is_told_to_who_waits_for_room(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    far.shutdown(socket.SHUT_WR)
    sent = fill(near)
    with epoll_of(near, events=EPOLLOUT) as epoll:
        waiting = Task(news, epoll).until_asleep()
        far.close()
        assert sent
        assert waiting.result().startswith("OUT")
        eventually(lambda: news(epoll), "OUT|ERR|HUP")


def test_a_large_stream_both_ways_driven_by_selectors(pair: Pair) -> None:
    settle_path(pair)
    data = {sock: payload(6 << 20, seed) for seed, sock in enumerate(pair)}
    peer = dict(zip(pair, reversed(tuple(pair)), strict=True))
    sent, received = dict.fromkeys(pair, 0), {sock: bytearray() for sock in pair}
    with selectors.DefaultSelector() as selector:
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


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_ends_as_the_kernel_says(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)
    settle_path(pair)
    unread = dict.fromkeys(pair, 0)
    peer = dict(zip(pair, reversed(tuple(pair)), strict=True))
    ended: set[socket.socket] = set()  # those that have ended their stream
    with contextlib.ExitStack() as stack:
        epolls = [stack.enter_context(select.epoll()) for _ in range(2)]
        where: dict[socket.socket, tuple[int, int]] = {}
        for _ in range(120):
            sock = chance.choice(tuple(pair))
            act = chance.choice(("send", "send", "receive", "receive", "register", "modify", "leave", "look", "end"))
            if act == "send" and sock not in ended:
                size = chance.choice((1, 40, 1000, 30_000))
                if unread[peer[sock]] + size < 60_000:
                    sock.sendall(bytes(size))
                    unread[peer[sock]] += size
            elif act == "receive" and unread[sock]:
                unread[sock] -= len(read_exactly(sock, chance.randint(1, unread[sock])))
            elif act == "register" and sock not in where:
                where[sock] = chance.randrange(2), chance.choice((EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, ALL))
                epolls[where[sock][0]].register(sock, where[sock][1])
            elif act == "modify" and sock in where:
                where[sock] = where[sock][0], chance.choice((0, EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, ALL))
                epolls[where[sock][0]].modify(sock, where[sock][1])
            elif act == "leave" and sock in where:
                epolls[where.pop(sock)[0]].unregister(sock)
            elif act == "end" and chance.random() < 0.1:
                sock.shutdown(socket.SHUT_WR)
                ended.add(sock)
            for number, epoll in enumerate(epolls):
                expected = sorted(
                    mask
                    for sock, (place, asked) in where.items()
                    if place == number
                    and (
                        mask := asked
                        & (
                            (EPOLLOUT if unread[peer[sock]] < 30_000 else 0)
                            | (EPOLLIN if unread[sock] or peer[sock] in ended else 0)
                            | (EPOLLRDHUP if peer[sock] in ended else 0)
                        )
                        | (EPOLLHUP if len(ended) == 2 else 0)
                    )
                )
                if all(unread[peer[sock]] < 30_000 for sock in pair):  # else there may be room or not
                    eventually(lambda epoll=epoll: sorted(mask for _, mask in epoll.poll(0)), expected)
                else:
                    epoll.poll(0)


def test_a_time_limit_and_a_signal(pair: Pair) -> None:
    near, far = pair
    settle_path(pair)
    with epoll_of(near) as epoll:
        began = time.monotonic()
        assert epoll.poll(0.1) == []
        assert time.monotonic() - began >= 0.1
        heard: list[int] = []
        before = signal.signal(signal.SIGUSR1, lambda *_: (heard.append(1), far.sendall(b"x"))[0])
        try:
            Task(lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGUSR1)))
            assert news(epoll) == "IN"
            assert heard
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_the_events_of_one_call_are_limited_and_all_come(pair: Pair) -> None:
    settle_path(pair)
    with contextlib.ExitStack() as stack, epoll_of(*pair) as epoll:
        socks = list(pair)
        for _ in range(4):
            more = stack.enter_context(make_pair(pair.kind))
            settle_path(more)
            for sock in more:
                epoll.register(sock, EPOLLIN)
            socks += more
        for sock in socks:
            sock.sendall(b"x")
        until(lambda: len(epoll.poll(0)) == len(socks), "all are told of")
        told = set()
        for _ in range(200):
            few = epoll.poll(0, 3)
            assert len(few) == 3
            told |= {number for number, _ in few}
        assert len(told) == len(socks)
