"""Bad input at the rendezvous: a peer that breaks the protocol loses its connection, and nothing else is touched."""

import fcntl
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.hostile_peer import (
    SEALS,
    VERSION,
    Peer,
    Region,
    holdings,
    holdings_at_rest,
    hostile,
    mapped_regions,
    open_descriptors,
    violations,
)
from harness.pairs import SECONDS, KernelSocket, Task, path_of, read_exactly, until

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

Lie = Callable[[Peer], object]


def assert_reset(peer: Peer) -> None:
    """Some send of the victim's says ECONNRESET, within the deadline, and none says anything else. The kernel's
    connection was reset: the peer reads RST behind whatever was there."""
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - which of them fails is of no concern
        while True:
            peer.victim.send(b"v")
            time.sleep(0.001)
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - which call fails is the kernel's to say
        while peer.tcp.recv(1 << 16):
            pass


# ---- the hello


def hello(peer: Peer, memfd: int, *more: int, **lies: int) -> None:
    peer.say_hello([memfd, *more], **lies)
    for fd in {memfd, *more}:
        os.close(fd)


def of_region(size: int | None = None, seals: int = SEALS, **lies: int) -> Lie:
    return lambda peer: hello(peer, peer.make_region(size, seals), **lies)


def with_header(field: str, value: int) -> Lie:
    def lie(peer: Peer) -> None:
        memfd = peer.make_region()
        peer.region[field] = value
        hello(peer, memfd)

    return lie


def raw(data: bytes) -> Lie:
    return lambda peer: peer.control.send(data)


def shorter_than_said(peer: Peer) -> None:
    memfd = peer.make_region()
    hello(peer, memfd, size=peer.region.size + 4096)


def made_otherwise(flags: int, pages: int) -> Lie:
    """Of nothing; or of huge pages, one of which can be taken away for good."""

    def lie(peer: Peer) -> None:
        memfd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING | flags)
        size = os.fstat(memfd).st_blksize * pages
        os.ftruncate(memfd, size)
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, SEALS)
        hello(peer, memfd, size=size)

    return lie


def not_a_memfd(peer: Peer) -> None:
    hello(peer, os.open("/dev/zero", os.O_RDWR), size=Region.size_of(peer.window, peer.chunk))


def ordinary_file(peer: Peer) -> None:
    """Right in everything but that it can be truncated under us."""
    sound = peer.make_region()
    with tempfile.TemporaryFile() as file:
        file.write(os.pread(sound, peer.region.size, 0))
        file.flush()
        peer.say_hello([file.fileno()])
    os.close(sound)


def no_descriptors(peer: Peer) -> None:
    os.close(peer.make_region())
    peer.say_hello([])


HELLOS: dict[str, tuple[Lie, str]] = {
    "garbage": (raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "garbage"),
    "garbage of the right length": (raw(b"?" * 40), "garbage"),
    "one byte": (raw(b"\0"), "garbage"),
    "long": (raw(b"x" * 60_000), "garbage"),
    "wrong magic": (of_region(magic=0), "garbage"),
    "no seals": (of_region(seals=0), "sealed"),
    "no size seals": (of_region(seals=fcntl.F_SEAL_SEAL), "sealed"),
    "shorter than said": (shorter_than_said, "wrong size"),
    "one page": (of_region(size=4096), "wrong size"),
    "empty": (made_otherwise(0, pages=0), "size"),
    "shorter than a header": (of_region(size=104), "region"),
    "enormous": (lambda peer: hello(peer, peer.make_region(), size=1 << 62), "wrong size"),
    "not a memfd": (not_a_memfd, "sealed"),
    "ordinary file": (ordinary_file, "sealed"),
    "too many files": (lambda peer: hello(peer, peer.make_region(), *os.pipe()), "descriptors"),
    "no descriptors": (no_descriptors, "descriptors"),
    "twelve descriptors": (lambda peer: hello(peer, *[peer.make_region()] * 12), "garbage"),
    **{
        f"header {field} {value}": (with_header(field, value), violation)
        for field, value, violation in [
            ("magic", 1, "magic"), ("version", VERSION + 1, "version"), ("kind", 1, "kind of socket"),
            ("window", 0, "window"), ("window", 64, "wrong size"), ("chunk", 1025, "chunk"),
        ]
    },
}  # fmt: skip
"""(All that is wrong with a header is in test_ring.py.)"""
if "hugetlbfs" in Path("/proc/filesystems").read_text():
    HELLOS["huge pages"] = (made_otherwise(os.MFD_HUGETLB, pages=1), "huge pages")


@pytest.mark.parametrize("lie", HELLOS)
def test_bad_hello_resets_its_connection(lie, healthy, caplog):
    before = holdings_at_rest()
    act, violation = HELLOS[lie]
    with hostile() as peer:
        peer.knock()
        act(peer)
        assert_reset(peer)
        [told] = violations(caplog)
        assert violation in told
        assert fastsock.path_of(peer.victim) == fastsock.Path("tcp", "protocol violation")
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


@pytest.mark.parametrize("field", ["magic", "version", "window", "chunk"])
def test_region_spoilt_between_the_answer_and_the_move(publishes, field, healthy, caplog):
    before = holdings_at_rest()
    with hostile(publishes) as peer:
        if publishes:
            peer.await_hello()
            peer.region[field] = 999
            peer.region["wakeup"] = 1
        else:
            peer.knock()
            hello(peer, peer.make_region())
            until(peer.answered, "the victim takes the region")
            peer.region[field] = 999
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


# ---- silent and absent peers


def test_two_silent_visitors_do_not_keep_the_connection_thread_busy(healthy):
    """The second waits while the first says nothing: the thread sleeps all the same."""
    with hostile() as peer:
        peer.knock()
        with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as second:
            second.connect(peer.name)
            peer.chat()
            before = time.process_time()
            time.sleep(0.5)
            assert time.process_time() - before < 0.25  # a busy thread takes all of the half second
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


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("budget", [0, 50], ids=["sleeps", "polls first"])
def test_a_receiver_sleeps_where_the_switch_is_behind_bytes_that_never_come(budget, readers, healthy, caplog):
    """What lies in the ring cannot be read before them, so it is nothing to wake for. (The sleeps are counted: one
    that burns a processor never sleeps, or wakes without end.)"""
    with fastsock.configure(poll_us=budget), hostile() as peer:
        peer.meet()
        peer.region.set(peer.side, "switch_at", peer.sent + 1 + 3)
        peer.post(b"ring")
        peer.victim.settimeout(None)
        peer.victim.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300_000))
        before = fastsock.stats().sleeps
        reading = [Task(peer.victim.recv, 100) for _ in range(readers)]
        peer.wake()
        for task in reading:
            with pytest.raises(BlockingIOError):
                task.result()
        assert readers <= fastsock.stats().sleeps - before < 100
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
