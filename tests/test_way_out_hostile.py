"""The way out against a peer written by hand: what the protocol says of it, and what a peer could do wrong."""

import contextlib
import os
import resource
import select
import socket
import time
from collections.abc import Iterator

import pytest
from hostile import (
    ASK_NAME,
    BACK,
    EXPOSED,
    GO_ON,
    LATER_IN_3_12,
    LEFT,
    MAGIC,
    READY,
    REFUSED,
    RETURNING,
    TOO_LATE,
    VERSION,
    Peer,
    as_nobody,
    events,
    holdings,
    holdings_at_rest,
    on_ring,
    violations,
)
from pairs import SECONDS, KernelSocket, Task, deadline, fill, make_pair, payload, read_exactly, until


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(40):
        yield


@pytest.fixture(params=[False, True], ids=["seeker", "publisher"])
def peer(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[Peer]:
    """A connection with both directions on the ring: the victim has sent descriptor 0, and has taken ours."""
    caplog.set_level("INFO", "fastsock")
    with make_pair("ring"):
        pass  # what a process makes once is there
    before = holdings_at_rest()
    with on_ring(request.param) as peer:
        yield peer
    until(lambda: holdings() == before, "nothing is left behind")


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


# ---- the peer leaves ---------------------------------------------------------------------------------------


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
    """POLLOUT stays true while the victim is held, and so the refusal promises an edge."""
    leave(peer)
    peer.victim.setblocking(False)
    with select.epoll() as poller, parcel(memfd(unread)) as fd:
        poller.register(peer.victim, select.EPOLLOUT | select.EPOLLET)
        assert poller.poll(SECONDS)
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


def test_its_own_send_notices_too(peer: Peer) -> None:
    peer.region.set(theirs(peer), "ready", LEFT)
    sending = Task(peer.victim.sendall, b"held")
    until(lambda: peer.region.get(theirs(peer), "fin"), "BACK")
    peer.region.set(theirs(peer), "settled", GO_ON)
    peer.wake()
    sending.result()
    assert read_exactly(peer.tcp, 4) == b"held"


def test_the_parcel_comes_before_what_is_sent_later(peer: Peer) -> None:
    leave(peer)
    sending = Task(peer.victim.sendall, b"later").until_asleep()
    with parcel(memfd(payload(10_000))) as fd:
        peer.ask(fd)
        assert read_exactly(peer.tcp, 10_005) == payload(10_000) + b"later"
    sending.result()
    assert peer.region.get(theirs(peer), "settled") == RETURNING
    assert peer.region.get(theirs(peer), "returned") == 10_001


def test_urgent_bytes_wait_too(peer: Peer) -> None:
    """They and the bytes of the same call stand behind the parcel, as they do on TCP."""
    peer.region.set(theirs(peer), "ready", LEFT)
    peer.victim.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.victim.send(b"ab!", socket.MSG_OOB)
    assert peer.region.get(theirs(peer), "fin") == BACK | 1
    with parcel(memfd(b"parcel")) as fd:
        peer.ask(fd)
        assert read_exactly(peer.tcp, 6) == b"parcel"
    assert peer.victim.send(b"ab!", socket.MSG_OOB) == 3
    peer.victim.send(b"cd")
    assert read_exactly(peer.tcp, 4) == b"abcd"


def test_a_parcel_is_sent_once(peer: Peer) -> None:
    leave(peer)
    with parcel(memfd(b"parcel")) as fd:
        for _ in range(5):
            peer.ask(fd)
    assert read_exactly(peer.tcp, 6) == b"parcel"
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 5) == b"later"


def test_a_parcel_after_going_on_is_not_sent(peer: Peer) -> None:
    leave(peer)
    peer.region.set(theirs(peer), "settled", GO_ON)
    with parcel(memfd(b"parcel")) as fd:
        peer.ask(fd)
        peer.ask()
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 5) == b"later"


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


@pytest.mark.parametrize("kind", ["empty", "huge", "pipe", "many"])
def test_what_is_no_parcel(peer: Peer, kind: str) -> None:
    """It is closed, and nothing happens."""
    leave(peer)
    reader, writer = os.pipe()
    made = memfd(b"", 0) if kind == "empty" else memfd(b"x", (1 << 26) + 1)
    try:
        peer.ask(*{"empty": [made], "huge": [made], "pipe": [reader], "many": [reader] * 8}[kind])
        time.sleep(0.05)
        assert peer.region.get(theirs(peer), "settled") == 0
    finally:
        for fd in (reader, writer, made):
            os.close(fd)
    peer.region.set(theirs(peer), "settled", GO_ON)
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 5) == b"later"


def test_a_parcel_without_leaving(peer: Peer) -> None:
    with parcel(memfd(b"parcel")) as fd:
        peer.ask(fd)
        time.sleep(0.05)
    assert peer.region.get(theirs(peer), "settled") == 0
    peer.victim.sendall(b"ring")
    assert peer.region.inlined(theirs(peer), 1) == b"ring"


# ---- the victim leaves -------------------------------------------------------------------------------------


def detached(peer: Peer) -> socket.socket:
    """The victim's descriptor, raw."""
    raw = KernelSocket(fileno=peer.victim.detach())
    raw.settimeout(SECONDS)
    return raw


def begin_to_leave(peer: Peer) -> Task:
    """The victim is being detached in another thread; the result is a raw socket."""
    task = Task(detached, peer)
    until(lambda: peer.region.get(peer.side, "ready") == LEFT, "LEFT")
    return task


@pytest.fixture
def leaving(peer: Peer) -> Iterator[Task]:
    """The victim of a peer that had nothing more to say is leaving."""
    task = begin_to_leave(peer)
    yield task
    with task.result():
        pass


def test_the_last_doorbell_byte_comes_before_back(peer: Peer) -> None:
    """Whoever reads up to BACK takes as many doorbell bytes as were rung, and what comes behind them is the stream. The
    kernel has no room for the byte at first: BACK does not wait for that, but what is written raw does."""
    peer.victim.sendall(b"unread")
    with KernelSocket(fileno=os.dup(peer.victim.fileno())) as filler:
        filler.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
        filled = fill(filler)
    leaving = Task(detached, peer)
    while not peer.region.get(theirs(peer), "fin"):
        pass  # (the test's deadline ends this)
    assert peer.region.get(theirs(peer), "rung") == 1
    read_exactly(peer.tcp, filled + 1)
    peer.go_back()
    with leaving.result() as raw:
        raw.sendall(b"more")
        assert read_exactly(peer.tcp, 4) == b"more"
        assert peer.region.get(theirs(peer), "fin") == BACK | 2
        assert peer.region.get(theirs(peer), "rung") == 1


@contextlib.contextmanager
def no_parcels() -> Iterator[None]:
    """No file can be written, as under `ulimit -f 0`: nor the memory in which a leaver keeps what lay unread."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_leaver_without_memory_for_what_lies_unread_loses_nothing(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes nothing then: a bridge carries what lies in the ring, and what comes."""
    peer.post(payload(5000))
    with no_parcels():
        leaving = begin_to_leave(peer)
        peer.go_back()
        raw = leaving.result()
    with raw:
        assert events(caplog, "fastsock.bridge")
        assert read_exactly(raw, 5000) == payload(5000)
        until(lambda: peer.region.get(peer.side, "settled") == GO_ON, "settled")
        peer.tcp.sendall(b"behind")
        assert read_exactly(raw, 6) == b"behind"
        raw.sendall(b"answer")
        assert read_exactly(peer.tcp, 6) == b"answer"


def test_nothing_unread(peer: Peer, leaving: Task) -> None:
    peer.go_back()
    until(lambda: peer.region.get(peer.side, "settled"), "settled")
    assert peer.region.get(peer.side, "settled") == GO_ON
    peer.tcp.sendall(b"kernel")
    raw = leaving.result()
    assert read_exactly(raw, 6) == b"kernel"
    raw.sendall(b"answer")
    assert read_exactly(peer.tcp, 6) == b"answer"
    assert peer.region.get(theirs(peer), "fin") == BACK | 1
    assert peer.region.get(theirs(peer), "ready") == TOO_LATE


def test_a_peer_that_does_nothing_is_left_behind_a_bridge(
    peer: Peer, leaving: Task, caplog: pytest.LogCaptureFixture
) -> None:
    raw = leaving.result()
    assert events(caplog, "fastsock.bridge")
    peer.post(b"in the ring")
    assert read_exactly(raw, 11) == b"in the ring"
    raw.sendall(b"answer")
    assert read_exactly(peer.tcp, 6) == b"answer"
    peer.go_back()
    until(lambda: peer.region.get(peer.side, "settled") == GO_ON, "settled by the bridge")
    peer.tcp.sendall(b"kernel")
    assert read_exactly(raw, 6) == b"kernel"


def test_unread_and_the_peer_does_not_send_it_again(peer: Peer) -> None:
    peer.post(payload(5_000))
    leaving = begin_to_leave(peer)
    peer.go_back()
    with leaving.result() as raw:
        assert read_exactly(raw, 5_000) == payload(5_000)
        assert peer.region.get(peer.side, "settled") == GO_ON
        peer.tcp.sendall(b"kernel")
        assert read_exactly(raw, 6) == b"kernel"


def test_the_peer_began_and_never_said_how_much(peer: Peer) -> None:
    """Nor does it end: what the kernel has is read, the rest when it says so."""
    peer.post(payload(5_000))
    leaving = begin_to_leave(peer)
    peer.go_back()
    until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")
    peer.region.set(peer.side, "settled", RETURNING)
    peer.tcp.sendall(payload(5_000)[:1_234])
    with leaving.result() as raw:
        assert read_exactly(raw, 1_234) == payload(5_000)[:1_234]
        peer.region.set(peer.side, "returned", 1_235)
        peer.tcp.sendall(b"kernel")
        assert read_exactly(raw, 5_000 - 1_234 + 6) == payload(5_000)[1_234:] + b"kernel"


def test_the_peer_began_and_died(peer: Peer) -> None:
    peer.post(payload(5_000))
    leaving = begin_to_leave(peer)
    peer.go_back()
    until(lambda: peer.region.get(peer.side, "seen") == peer.posted, "the parcel is complete")
    peer.region.set(peer.side, "settled", RETURNING)
    peer.tcp.sendall(payload(5_000)[:1_234])
    peer.tcp.shutdown(socket.SHUT_WR)
    with leaving.result() as raw:
        assert read_exactly(raw, 6_000) == payload(5_000)


def test_too_late(peer: Peer) -> None:
    """The peer has left itself and takes nothing back: what lies unread crosses a bridge."""
    peer.post(payload(5_000))
    peer.go_back()
    peer.tcp.sendall(b"kernel")
    assert peer.region.get(peer.side, "ready") == READY
    peer.region.set(peer.side, "ready", TOO_LATE)
    with detached(peer) as raw:
        assert read_exactly(raw, 5_006) == payload(5_000) + b"kernel"


@pytest.mark.parametrize("lie", ["place of BACK", "kind", "more returned"])
def test_lies_dissolve_the_connection(peer: Peer, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    peer.post(payload(5_000))
    leaving = begin_to_leave(peer)
    if lie == "more returned":
        peer.region.set(peer.side, "settled", RETURNING)
        peer.region.set(peer.side, "returned", 6_000)
        peer.go_back()
    elif lie == "place of BACK":
        peer.go_back(3)
    else:
        peer.region.set(peer.side, "fin", 7 << 32 | peer.posted)
    with leaving.result() as raw:
        if lie == "kind":  # not one after which the peer could send again: a bridge reads up to it
            assert read_exactly(raw, 5_000) == payload(5_000)
            with pytest.raises(ConnectionResetError):
                raw.recv(1)
        else:
            assert len(violations(caplog)) == 1
    with pytest.raises(ConnectionResetError):
        assert peer.tcp.recv(1)


def test_doorbell_bytes_that_never_come(peer: Peer) -> None:
    """The leaver waits for them for a second, the bridge until the peer ends."""
    peer.victim.fileno()
    assert peer.region.get(peer.side, "doorbell") & EXPOSED
    leaving = begin_to_leave(peer)
    peer.region.set(peer.side, "rung", 1_000)
    peer.go_back()
    with leaving.result() as raw:
        peer.tcp.sendall(bytes(1_000) + b"kernel")
        assert read_exactly(raw, 6) == b"kernel"


# ---- what is no request ----------------------------------------------------------------------------------------


def until_heard(peer: Peer) -> None:
    """Until the victim's connection thread has taken all that was sent to it."""
    exit_, entry = os.pipe()
    peer.ask(entry, said=b"")
    os.close(entry)
    assert Task(os.read, exit_, 1).result() == b""  # it closes what it did not ask for
    os.close(exit_)


MESSAGES = {
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


@pytest.mark.parametrize("message", MESSAGES)
def test_a_parcel_without_a_request_is_not_sent(peer: Peer, message: str) -> None:
    """Nor is the request before it taken for its own."""
    leave(peer)
    with parcel(memfd(b"stranger's")) as fd:
        peer.ask(fd, said=MESSAGES[message](peer))
    until_heard(peer)
    assert peer.region.get(theirs(peer), "settled") == 0
    with parcel(memfd(b"parcel")) as fd:
        peer.ask(fd)
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 11) == b"parcellater"


def test_several_parcels_are_none(peer: Peer) -> None:
    leave(peer)
    with parcel(memfd(b"one")) as one, parcel(memfd(b"two")) as two:
        peer.ask(one, two)
        peer.ask(*[one] * 8)
    until_heard(peer)
    assert peer.region.get(theirs(peer), "settled") == 0
    peer.region.set(theirs(peer), "settled", GO_ON)
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 5) == b"later"


@LATER_IN_3_12
def test_a_request_of_another_user_is_not_answered(peer: Peer) -> None:
    """Even if it knew the region's id."""
    if os.geteuid():
        pytest.skip("only root becomes another user")
    leave(peer)
    with parcel(memfd(b"stranger's")) as fd:
        os.waitpid(as_nobody(lambda: peer.ask(fd)), 0)
    until_heard(peer)
    assert peer.region.get(theirs(peer), "settled") == 0
    peer.region.set(theirs(peer), "settled", GO_ON)
    peer.victim.sendall(b"later")
    assert read_exactly(peer.tcp, 5) == b"later"


def test_a_parcel_that_finds_no_descriptor_number_is_no_request(peer: Peer) -> None:
    """It may be sent again; and the connection is as it was."""
    leave(peer)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    exit_, entry = os.pipe()
    with (
        parcel(memfd(b"parcel")) as fd,
        KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        contextlib.ExitStack() as taken,
    ):
        sender.connect(f"{ASK_NAME}{peer.region[f'asks{theirs(peer)}']:016x}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012 - which call fails is the kernel's to say
                while True:
                    taken.callback(os.close, os.dup(1))
            for _ in range(3):
                socket.send_fds(sender, [peer.request(theirs(peer))], [fd])
            # Each is gone from the queue once it was looked at: its descriptors are, too.
            socket.send_fds(sender, [b""], [entry])
            os.dup2(1, entry)  # (closed, its number would be free for a parcel that was not looked at yet)
            taken.callback(os.close, entry)
            assert Task(os.read, exit_, 1).result() == b""
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert peer.region.get(theirs(peer), "settled") == 0
        peer.ask(fd)
    os.close(exit_)
    assert read_exactly(peer.tcp, 6) == b"parcel"
