"""Bad input at the rendezvous: a peer that breaks the protocol loses its connection, and nothing else is touched."""

import contextlib
import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostile import (
    FIN,
    SEALS,
    Peer,
    Region,
    holdings,
    holdings_at_rest,
    hostile,
    mapped_regions,
    open_descriptors,
    violations,
)
from pairs import SECONDS, KernelSocket, Task, deadline, path_of, read_exactly, until

import fastsock


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(40):
        yield


def assert_reset(peer: Peer) -> None:
    """The kernel connection was reset: the peer reads RST behind whatever was there."""
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - which call fails is the kernel's to say
        while peer.tcp.recv(1 << 16):
            pass


def use_until_reset(peer: Peer) -> None:
    """Some send of the victim's says ECONNRESET, within the deadline, and none says anything else."""

    def failed() -> bool:
        try:
            peer.victim.send(b"v")
        except ConnectionResetError:
            return True
        return False

    until(failed, "the victim's connection is reset")


# ---- the hello


def no_seals(peer: Peer) -> None:
    _hello(peer, peer.make_region(seals=0))


def no_size_seals(peer: Peer) -> None:
    _hello(peer, peer.make_region(seals=fcntl.F_SEAL_SEAL))


def shorter_than_said(peer: Peer) -> None:
    _hello(peer, peer.make_region(), size=peer.region.size + 4096)


def one_page(peer: Peer) -> None:
    _hello(peer, peer.make_region(size=4096))


def empty(peer: Peer) -> None:
    memfd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, SEALS)
    _hello(peer, memfd, size=0)


def shorter_than_a_header(peer: Peer) -> None:
    _hello(peer, peer.make_region(size=104))


def enormous(peer: Peer) -> None:
    _hello(peer, peer.make_region(), size=1 << 62)


def not_a_memfd(peer: Peer) -> None:
    size = Region.size_of(peer.window, peer.chunk)
    _hello(peer, os.open("/dev/zero", os.O_RDWR), size=size)


def ordinary_file(peer: Peer) -> None:
    """Right in everything but that it can be truncated under us."""
    sound = peer.make_region()
    with tempfile.TemporaryFile() as file:
        file.write(os.pread(sound, peer.region.size, 0))
        file.flush()
        peer.say_hello([file.fileno()])
    os.close(sound)


def of_huge_pages(peer: Peer) -> None:
    """Right in everything but that a page can be taken away for good."""
    memfd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    size = os.fstat(memfd).st_blksize
    os.ftruncate(memfd, size)
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, SEALS)
    _hello(peer, memfd, size=size)


HUGE_PAGES = [(of_huge_pages, "huge pages")] if "hugetlbfs" in Path("/proc/filesystems").read_text() else []


def files_too_many(peer: Peer) -> None:
    memfd = peer.make_region()
    first, second = os.pipe()
    peer.say_hello([memfd, first, second])
    for fd in (memfd, first, second):
        os.close(fd)


def no_descriptors(peer: Peer) -> None:
    os.close(peer.make_region())
    peer.say_hello([])


def twelve_descriptors(peer: Peer) -> None:
    memfd = peer.make_region()
    peer.say_hello([memfd] * 12)
    os.close(memfd)


def _hello(peer: Peer, memfd: int, **lies: int) -> None:
    peer.say_hello([memfd], **lies)
    os.close(memfd)


def with_header(field: str, value: int) -> Callable[[Peer], None]:
    def lie(peer: Peer) -> None:
        memfd = peer.make_region()
        peer.region[field] = value
        _hello(peer, memfd)

    lie.__name__ = f"header_{field}_{value}"
    return lie


def saying(what: str, **lies: int) -> Callable[[Peer], None]:
    def lie(peer: Peer) -> None:
        _hello(peer, peer.make_region(), **lies)

    lie.__name__ = what
    return lie


def raw(what: str, data: bytes) -> Callable[[Peer], None]:
    def lie(peer: Peer) -> None:
        peer.control.send(data)

    lie.__name__ = what
    return lie


HELLOS = [
    (raw("garbage", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "garbage"),
    (raw("garbage_of_the_right_length", b"?" * 40), "garbage"),
    (raw("one_byte", b"\0"), "garbage"),
    (raw("long", b"x" * 60_000), "garbage"),
    (saying("wrong_magic", magic=0), "garbage"),
    (no_seals, "sealed"),
    (no_size_seals, "sealed"),
    (shorter_than_said, "wrong size"),
    (one_page, "wrong size"),
    (empty, "size"),
    (shorter_than_a_header, "region"),
    (enormous, "wrong size"),
    (not_a_memfd, "sealed"),
    (ordinary_file, "sealed"),
    *HUGE_PAGES,
    (files_too_many, "descriptors"),
    (no_descriptors, "descriptors"),
    (twelve_descriptors, "garbage"),
    (with_header("magic", 1), "magic"),
    (with_header("version", 7), "version"),
    (with_header("kind", 1), "kind of socket"),
    (with_header("window", 0), "window"),
    (with_header("window", 1025), "window"),
    (with_header("window", 0xFFFFFFFF), "window"),
    (with_header("window", 64), "wrong size"),
    (with_header("chunk", 0), "chunk"),
    (with_header("chunk", 1025), "chunk"),
    (with_header("chunk", 0xFFFFFFC0), "chunk"),
]


@pytest.mark.parametrize(("lie", "violation"), HELLOS, ids=[lie.__name__ for lie, _ in HELLOS])
def test_bad_hello_resets_its_connection(lie, violation, healthy, caplog):
    before = holdings_at_rest()
    with hostile() as peer:
        peer.knock()
        lie(peer)
        use_until_reset(peer)
        assert_reset(peer)
        [told] = violations(caplog)
        assert violation in told
        assert fastsock.path_of(peer.victim) == fastsock.Path("tcp", "peer broke the protocol")
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


def test_region_that_lies_about_slots_and_arena_is_measured_by_its_window(healthy, caplog):
    with hostile() as peer:
        peer.knock()
        memfd = peer.make_region()
        peer.region["slots"] = peer.region["arena"] = 0xFFFFFFFF
        _hello(peer, memfd)
        until(peer.victim_consents, "the victim consents")
        peer.move()
        peer.post()
        assert peer.victim.recv(4) == b"ring"
        assert not violations(caplog)


@pytest.mark.parametrize("field", ["magic", "version", "window", "chunk"])
@pytest.mark.parametrize("publishes", [False, True])
def test_region_spoilt_between_the_answer_and_the_move(publishes, field, healthy, caplog):
    before = holdings_at_rest()
    with hostile(publishes) as peer:
        if publishes:
            peer.await_hello()
            peer.region[field] = 999
            peer.region["wakeup"] = 1
        else:
            peer.knock()
            _hello(peer, peer.make_region())
            until(peer.answered, "the victim takes the region")
            peer.region[field] = 999
        use_until_reset(peer)
        assert_reset(peer)
        assert len(violations(caplog)) == 1
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


# ---- descriptors that nobody asked for


def test_descriptors_with_an_empty_hello_are_closed(healthy):
    with hostile() as peer:
        peer.knock()
        before = open_descriptors()
        gate = os.pipe()
        socket.send_fds(peer.control, [b""], [gate[1]])
        os.close(gate[1])
        # The only writer left is the copy that the victim was sent.
        os.set_blocking(gate[0], True)
        reader = Task(os.read, gate[0], 1)
        assert reader.result() == b""
        os.close(gate[0])
        until(lambda: open_descriptors() <= before, "the visitor's own descriptor is closed behind those that it sent")


def test_descriptors_with_a_hello_for_an_old_region_are_closed(healthy):
    with hostile() as peer:
        peer.meet()
        peer.move()
        peer.consent()
        region_id, old = peer.id, peer.region
        peer.region.set(peer.side, "fin", FIN)
        peer.wake()
        assert peer.victim.recv(1) == b""
        peer.victim.close()  # parks its mapping
        with contextlib.closing(Peer(False, window=peer.window, chunk=peer.chunk)) as again:
            again.knock()
            exit_, entry = os.pipe()
            again.id, again.region = region_id, None
            again.say_hello([entry], reuse=1, size=old.size)
            os.close(entry)
            reader = Task(os.read, exit_, 1)
            assert reader.result() == b""
            os.close(exit_)


# ---- silent and absent peers


def cpu_seconds() -> float:
    return sum(os.times()[:2])


def test_two_silent_visitors_do_not_keep_the_connection_thread_busy(healthy):
    """The second waits while the first says nothing: the thread sleeps all the same."""
    with hostile() as peer:
        peer.knock()
        with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as second:
            second.connect(peer.name)
            peer.chat()
            before = cpu_seconds()
            time.sleep(0.5)
            assert cpu_seconds() - before < 0.25  # a busy thread takes all of the half second
        peer.chat()


def test_a_visitor_that_leaves_makes_room_for_the_next(healthy):
    with hostile() as peer:
        peer.knock().close()
        peer.meet()
        peer.chat()


def test_an_answer_that_never_comes_leaves_kernel_tcp(healthy):
    with hostile(publishes=True) as peer:
        peer.await_hello()
        for _ in range(100):
            peer.chat()
        assert path_of(peer.victim) == "tcp"


def test_hello_refused_leaves_kernel_tcp(healthy):
    for answer, reason in ((b"u", "peer belongs to another user"), (b"v", "peer refused"), (b"x", "peer refused")):
        with hostile(publishes=True) as peer:
            before = mapped_regions()
            peer.await_hello()
            peer.region.close()
            peer.region = None
            peer.control.send(answer)
            peer.control.close()

            def decided(peer: Peer = peer, reason: str = reason) -> bool:
                peer.chat()
                return fastsock.path_of(peer.victim) == fastsock.Path("tcp", reason)

            until(decided, reason)
            assert mapped_regions() == before


# ---- bytes that never come


def sleeps() -> int:
    return fastsock.stats().sleeps


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("budget", [0, 50], ids=["sleeps", "polls first"])
def test_a_receiver_sleeps_where_the_switch_is_behind_bytes_that_never_come(budget, readers, healthy, caplog):
    """What lies in the ring cannot be read before them, so it is nothing to wake for. (The sleeps are counted: one
    that burns a processor never sleeps, or wakes without end.)"""
    with fastsock.configure(poll_us=budget), hostile() as peer:
        peer.meet()
        peer.region.set(peer.side, "switch_at", peer.sent + 1 + 3)
        peer.post(b"ring")
        peer.victim.settimeout(0.3)
        before = sleeps()
        reading = [Task(peer.victim.recv, 100) for _ in range(readers)]
        peer.wake()
        for task in reading:
            with pytest.raises(TimeoutError):
                task.result()
        assert readers <= sleeps() - before < 100
        peer.victim.settimeout(SECONDS)
        peer.send(b"abc")
        assert read_exactly(peer.victim, 7) == b"abcring"
        assert not violations(caplog)


def test_who_takes_the_last_of_the_kernels_bytes_wakes_who_waits_for_the_ring(healthy, caplog):
    """It slept, although something was in the ring; and nobody rings for that any more."""
    for _ in range(20):
        with hostile() as peer:
            peer.meet()
            peer.region.set(peer.side, "switch_at", peer.sent + 1 + 1)
            peer.post(b"ring")
            waits = Task(peer.victim.recv, 1).until_asleep()
            peer.send(b"k")
            try:
                taken = peer.victim.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                taken = b""  # the other one was quicker
            taken = {taken or peer.victim.recv(1), waits.result()}
            assert taken == {b"k", b"r"}
        assert not violations(caplog)
