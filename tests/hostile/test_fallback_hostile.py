"""The way out against a peer written by hand: what the protocol says of it, and what a peer could do wrong."""

import contextlib
import functools
import os
import select
import time
from collections.abc import Callable, Iterator

import pytest
from harness.hostile_peer import BACK, GO_ON, LEFT, MAGIC, REFUSED, RETURNING, VERSION, Peer, as_nobody
from harness.pairs import SECONDS, Task, payload, read_exactly, until

pytestmark = pytest.mark.usefixtures("bounded")


def theirs(peer: Peer) -> int:
    """The half in which the victim sends."""
    return 1 - peer.side


def memfd(data: bytes, size: int | None = None) -> int:
    fd = os.memfd_create("parcel")
    os.write(fd, data)
    if size is not None:
        os.ftruncate(fd, size)
    return fd


@contextlib.contextmanager
def parcel(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def leave(peer: Peer) -> None:
    """Steps 1 and 2 of the protocol."""
    peer.region.set(theirs(peer), "ready", LEFT)
    peer.ask()
    until(lambda: peer.region.get(theirs(peer), "fin"), "BACK")
    assert peer.region.get(theirs(peer), "fin") == BACK | 1


def test_the_victim_goes_back_and_is_held_until_it_is_settled(peer: Peer) -> None:
    leave(peer)
    peer.victim.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.victim.send(b"held")
    peer.victim.settimeout(SECONDS)
    sending = Task(peer.victim.sendall, b"held").until_asleep()
    peer.region.set(theirs(peer), "settled", GO_ON)
    peer.wake()
    sending.result()
    assert read_exactly(peer.tcp, 4) == b"held"


@pytest.mark.parametrize("unread", [b"", b"unread"], ids=["nothing-unread", "unread"])
def test_a_program_that_polls_by_edge_hears_that_it_may_send(peer: Peer, unread: bytes) -> None:
    """While the victim is held there is no room."""
    leave(peer)
    peer.victim.setblocking(False)
    with select.epoll() as poller, parcel(memfd(unread)) as fd:
        poller.register(peer.victim, select.EPOLLOUT | select.EPOLLET)
        with pytest.raises(BlockingIOError):
            peer.victim.send(b"held")
        assert not poller.poll(0)
        if unread:
            peer.ask(fd)
        else:
            peer.region.set(theirs(peer), "settled", GO_ON)
            peer.wake()
            peer.ask()
        assert poller.poll(SECONDS)
    assert peer.victim.send(b"held") == 4
    assert read_exactly(peer.tcp, len(unread) + 4) == unread + b"held"


def test_the_parcel_comes_before_what_is_sent_later(peer: Peer) -> None:
    leave(peer)
    sending = Task(peer.victim.sendall, b"later").until_asleep()
    with parcel(memfd(payload(10_000))) as fd:
        peer.ask(fd)
        assert read_exactly(peer.tcp, 10_005) == payload(10_000) + b"later"
    sending.result()
    assert peer.region.get(theirs(peer), "settled") == RETURNING
    assert peer.region.get(theirs(peer), "returned") == 10_001


def test_a_peer_that_never_settles_is_refused(peer: Peer) -> None:
    leave(peer)
    began = time.monotonic()
    peer.victim.sendall(b"at last")
    assert 1 < time.monotonic() - began < 8
    assert peer.region.get(theirs(peer), "settled") == REFUSED
    assert read_exactly(peer.tcp, 7) == b"at last"


def test_a_peer_that_dies_while_the_victim_is_held(peer: Peer) -> None:
    leave(peer)
    sending = Task(peer.victim.sendall, b"held").until_asleep()
    peer.tcp.close()
    with contextlib.suppress(ConnectionError):
        sending.result()
    assert peer.region.get(theirs(peer), "settled") == REFUSED


def until_heard(peer: Peer) -> None:
    """Until the victim's connection thread has taken all that was sent to it."""
    exit_, entry = os.pipe()
    peer.ask(entry, said=b"")
    os.close(entry)
    assert Task(os.read, exit_, 1).result() == b""  # it closes what it did not ask for
    os.close(exit_)


def ask_with(peer: Peer, *parcels: int, said: bytes | None = None) -> None:
    peer.ask(*parcels, said=said)
    for number in set(parcels):
        os.close(number)


def pipes(count: int) -> list[int]:
    reader, writer = os.pipe()
    os.close(writer)
    return [reader] * count


MESSAGES: dict[str, Callable[[Peer], bytes]] = {
    "empty": lambda peer: b"",
    "the id alone": lambda peer: peer.id,
    "too short": lambda peer: peer.request(theirs(peer))[:-1],
    "too long": lambda peer: peer.request(theirs(peer)) + b"x",
    "very long": lambda peer: peer.request(theirs(peer)) + bytes(60_000),
    "another region's": lambda peer: peer.request(theirs(peer))[:-16] + bytes(16),
    "for the asking side": lambda peer: peer.request(peer.side),
    "for no side": lambda peer: peer.request(theirs(peer) | 1 << 8),
    "of a later version": lambda peer: peer.request(theirs(peer), version=VERSION + 1),
    "of an earlier version": lambda peer: peer.request(theirs(peer), version=VERSION - 1),
    "longer and of a later version": lambda peer: peer.request(theirs(peer), version=VERSION + 1) + bytes(100),
    "of another magic": lambda peer: peer.request(theirs(peer), magic=MAGIC),
}


NO_PARCELS: dict[str, Callable[[Peer], None]] = {
    "empty file": lambda peer: ask_with(peer, memfd(b"", 0)),
    "huge file": lambda peer: ask_with(peer, memfd(b"x", (1 << 26) + 1)),
    "pipe": lambda peer: ask_with(peer, *pipes(1)),
    "many pipes": lambda peer: ask_with(peer, *pipes(8)),
    "several": lambda peer: ask_with(peer, memfd(b"one"), memfd(b"two")),
    "many": lambda peer: ask_with(peer, *[memfd(b"one")] * 8),
    **{
        f"with a request that is {name}": functools.partial(
            lambda said, peer: ask_with(peer, memfd(b"stranger's"), said=said(peer)), said
        )
        for name, said in MESSAGES.items()
    },
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_parcel_of_who_has_changed_its_user(peer: Peer) -> None:
    """It knows the region's id, as a child does that has given up its privileges."""
    leave(peer)
    with parcel(memfd(b"parcel")) as fd:
        os.waitpid(as_nobody(lambda: peer.ask(fd)), 0)
    until_heard(peer)
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 11) == b"parcellater"


@pytest.mark.parametrize("what", NO_PARCELS)
def test_what_is_no_parcel(peer: Peer, what: str) -> None:
    """It is closed, and not sent. Nor is the request before it taken for its own."""
    leave(peer)
    NO_PARCELS[what](peer)
    until_heard(peer)
    assert peer.region.get(theirs(peer), "settled") == 0
    with parcel(memfd(b"parcel")) as fd:
        peer.ask(fd)
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 11) == b"parcellater"
