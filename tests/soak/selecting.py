"""Programs that wait for readiness: select, poll, and epoll by level, by edge and one-shot."""

from __future__ import annotations

import select
import socket

from tests.soak.calls import finish, receive_some, send_some
from tests.soak.stream import Talk, Wrong
from tests.soak.watch import PATIENCE


def _receive(talk: Talk, sock: socket.socket, most: int) -> bool:
    """Up to `most` receives. False if there was nothing more."""
    try:
        for _ in range(most):
            if not talk.takes or talk.stage_over:
                return True
            receive_some(talk, sock)
    except BlockingIOError:
        return False
    return True


def _send(talk: Talk, sock: socket.socket, most: int) -> bool:
    """Up to `most` sends, and the end of the stream where it is next. False if no more can be sent now."""
    try:
        for _ in range(most):
            if not talk.allowed or talk.stage_over:
                break
            send_some(talk, sock)
    except BlockingIOError:
        return False
    finish(talk, sock)
    return True


def _wanted(talk: Talk, reads: int, writes: int) -> int:
    return (reads if talk.takes else 0) | (writes if talk.allowed else 0)


def _nothing() -> Wrong:
    return Wrong(f"nothing became ready for {PATIENCE:.0f} s")


def by_select(talk: Talk, sock: socket.socket) -> None:
    sock.setblocking(False)
    while not talk.stage_over:
        if talk.sent_all:
            finish(talk, sock)
            continue
        readable, writable, _ = select.select(
            [sock] if talk.takes else [], [sock] if talk.allowed else [], [], PATIENCE
        )
        if not readable and not writable:
            raise _nothing()
        if writable:
            _send(talk, sock, talk.rng.randrange(1, 5))
        if readable:
            _receive(talk, sock, talk.rng.randrange(1, 9))


def _by_events(talk: Talk, sock: socket.socket, poller: select.epoll | select.poll, wait: float, once: int) -> None:
    """poll, and epoll by level or one-shot: the wanted events are registered before each wait."""
    poller.register(sock, 0)
    while not talk.stage_over:
        if talk.sent_all:
            finish(talk, sock)
            continue
        poller.modify(sock, _wanted(talk, select.POLLIN, select.POLLOUT) | once)
        events = poller.poll(wait)
        if not events:
            raise _nothing()
        if events[0][1] & ~select.POLLIN and talk.allowed:
            _send(talk, sock, talk.rng.randrange(1, 5))
        if events[0][1] & ~select.POLLOUT and talk.takes:
            _receive(talk, sock, talk.rng.randrange(1, 9))


def by_poll(talk: Talk, sock: socket.socket) -> None:
    sock.setblocking(False)
    _by_events(talk, sock, select.poll(), PATIENCE * 1000, 0)


def by_epoll(talk: Talk, sock: socket.socket) -> None:
    sock.setblocking(False)
    with select.epoll() as poller:
        _by_events(talk, sock, poller, PATIENCE, 0)


def by_oneshot(talk: Talk, sock: socket.socket) -> None:
    sock.setblocking(False)
    with select.epoll() as poller:
        _by_events(talk, sock, poller, PATIENCE, select.EPOLLONESHOT)


def by_edge(talk: Talk, sock: socket.socket) -> None:
    """As edge-triggered programs must: what an edge said holds until a call says EAGAIN."""
    sock.setblocking(False)
    readable = writable = True
    with select.epoll() as poller:
        poller.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        while not talk.stage_over:
            if talk.sent_all:
                finish(talk, sock)
            elif talk.allowed and writable:
                writable = _send(talk, sock, talk.rng.randrange(1, 5))
                if readable and talk.takes:
                    readable = _receive(talk, sock, talk.rng.randrange(1, 9))
            elif readable and talk.takes:
                readable = _receive(talk, sock, talk.rng.randrange(1, 9))
            else:
                events = poller.poll(PATIENCE)
                if not events:
                    raise _nothing()
                readable = readable or bool(events[0][1] & ~select.EPOLLOUT)
                writable = writable or bool(events[0][1] & ~select.EPOLLIN)
