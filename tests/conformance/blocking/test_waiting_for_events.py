"""Waiting in select, poll and epoll: what wakes it, what does not, and what a registration outlives."""

import contextlib
import select
import selectors
import socket
from select import EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, POLLERR, POLLHUP, POLLIN, POLLOUT

from harness.pairs import SECONDS, Pair, Task, fill, make_pair, names_of, pattern, payload, poll_mask, read_exactly


def wait(sock: socket.socket, events: int) -> str:
    """Sleeps in ``poll`` until something happens; the mask in words."""
    poll = select.poll()
    poll.register(sock, events)
    return names_of(sum(mask for _, mask in poll.poll(SECONDS * 1000)))


def news(epoll: select.epoll, seconds: float = SECONDS) -> str:
    """The next event of the one descriptor registered, in words."""
    return names_of(sum(mask for _, mask in epoll.poll(seconds)))


def nothing_new(epoll: select.epoll) -> bool:
    return not epoll.poll(0.02)


def test_data_wakes_a_poll(pair: Pair) -> None:
    near, far = pair
    for _ in range(5):
        waiting = Task(wait, near, POLLIN).until_asleep()
        far.sendall(b"data")
        assert waiting.result() == "IN"
        assert near.recv(100) == b"data"
        assert poll_mask(near) == POLLOUT


def test_room_wakes_a_poll(pair: Pair) -> None:
    near, far = pair
    for _ in range(2):
        sent = fill(near)
        waiting = Task(wait, near, POLLOUT).until_asleep()
        assert read_exactly(far, sent) == pattern(sent)
        assert waiting.result() == "OUT"


def test_the_peers_going_wakes_a_poll(pair: Pair) -> None:
    near, far = pair
    waiting = Task(wait, near, select.POLLRDHUP).until_asleep()
    far.shutdown(socket.SHUT_WR)
    assert waiting.result() == "RDHUP"
    near.sendall(b"never read")
    waiting = Task(wait, near, 0).until_asleep()
    far.close()
    assert waiting.result() == names_of(POLLERR | POLLHUP)


def test_sending_does_not_look_like_receiving(pair: Pair) -> None:
    near, far = pair
    poll = select.poll()
    poll.register(near, POLLIN)
    for _ in range(500):
        near.sendall(b"one way")
        assert far.recv(100) == b"one way"
        assert poll.poll(0) == []
    data = payload(4 << 20)
    reader = Task(read_exactly, far, len(data))
    near.sendall(data)
    assert reader.result() == data
    assert poll.poll(50) == []


def test_a_large_stream_driven_by_readiness_alone(pair: Pair) -> None:
    near, far = pair
    data = payload(8 << 20)
    near.setblocking(False)
    far.setblocking(False)
    received, view = bytearray(), memoryview(data)
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_WRITE)
        selector.register(far, selectors.EVENT_READ)
        while len(received) < len(data):
            ready = selector.select(SECONDS)
            assert ready, "neither room nor data, and bytes still to come"
            for key, _ in ready:
                if key.fileobj is far:
                    received += far.recv(100_000)
                elif view:
                    # Writable may turn out not to be, as poll(2) warns: the kernel's own buffers still settle.
                    with contextlib.suppress(BlockingIOError):
                        view = view[near.send(view[:150_000]) :]
                else:
                    selector.unregister(near)
    assert received == data


def converse_by_epoll(pair: Pair, epoll: select.epoll) -> None:
    """A conversation in which the near end reads only when ``epoll`` says so, and is told so exactly once."""
    near, far = pair
    for number in range(100):
        far.sendall(b"question %d" % number)
        assert news(epoll) == "IN"
        assert near.recv(100) == b"question %d" % number
        assert epoll.poll(0) == []
        near.sendall(b"answer")
        assert far.recv(100) == b"answer"
    pair.check_path()
    far.shutdown(socket.SHUT_WR)
    assert news(epoll) == "IN|RDHUP"


def test_a_registration_outlives_the_move(pair: Pair) -> None:
    with select.epoll() as epoll:
        epoll.register(pair.near, EPOLLIN | EPOLLRDHUP)
        converse_by_epoll(pair, epoll)


def test_a_registration_made_before_connecting(kind: str) -> None:
    with select.epoll() as epoll:
        register = lambda sock: epoll.register(sock, EPOLLIN | EPOLLRDHUP)  # noqa: E731
        with make_pair(kind, before_connect=register) as pair:
            converse_by_epoll(pair, epoll)


def test_a_registration_made_with_data_waiting(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"waiting")
    with select.epoll() as epoll:
        epoll.register(near, EPOLLIN)
        assert news(epoll) == news(epoll) == "IN"
        assert near.recv(100) == b"waiting"
        assert nothing_new(epoll)


def test_edge_triggered_tells_once(pair: Pair) -> None:
    near, far = pair
    with select.epoll() as epoll:
        epoll.register(near, EPOLLIN | EPOLLET)
        assert nothing_new(epoll)
        for number in range(5):
            far.sendall(b"edge %d" % number)
            assert news(epoll) == "IN"
            assert nothing_new(epoll)
            assert near.recv(100) == b"edge %d" % number
            assert nothing_new(epoll)


def test_edge_triggered_tells_of_more_behind_unread_bytes(pair: Pair) -> None:
    near, far = pair
    with select.epoll() as epoll:
        epoll.register(near, EPOLLIN | EPOLLET)
        for _ in range(5):
            far.sendall(b"more")
            assert news(epoll) == "IN"
            assert nothing_new(epoll)
        assert near.recv(10) == b"moremoremo"
        far.sendall(b"and more")
        assert news(epoll) == "IN"
        assert read_exactly(near, 18) == b"remoremoreand more"


def test_edge_triggered_tells_of_the_end(pair: Pair) -> None:
    near, far = pair
    with select.epoll() as epoll:
        epoll.register(near, EPOLLIN | EPOLLRDHUP | EPOLLET)
        far.sendall(b"data")
        assert news(epoll) == "IN"
        far.shutdown(socket.SHUT_WR)
        assert news(epoll) == "IN|RDHUP"
        assert nothing_new(epoll)


def test_edge_triggered_tells_of_room(pair: Pair) -> None:
    near, far = pair
    with select.epoll() as epoll:
        sent = fill(near)
        epoll.register(near, EPOLLOUT | EPOLLET)
        assert nothing_new(epoll)
        assert read_exactly(far, sent) == pattern(sent)
        assert news(epoll) == "OUT"


def test_oneshot_is_silent_until_armed_again(pair: Pair) -> None:
    near, far = pair
    with select.epoll() as epoll:
        epoll.register(near, EPOLLIN | EPOLLONESHOT)
        for _ in range(3):
            far.sendall(b"data")
            assert news(epoll) == "IN"
            far.sendall(b"more")
            assert nothing_new(epoll)
            epoll.modify(near, EPOLLIN | EPOLLONESHOT)
            assert news(epoll) == "IN"
            assert read_exactly(near, 8) == b"datamore"
            epoll.modify(near, EPOLLIN | EPOLLONESHOT)
            assert nothing_new(epoll)
