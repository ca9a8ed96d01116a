"""Bad input after the move: whatever a peer writes into the region, at worst its own connection is reset."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hostile import (
    DATA,
    EXPOSED,
    FIN,
    GONE,
    INLINED,
    OPEN,
    RESET,
    SEALED,
    SPARES,
    Peer,
    holdings,
    holdings_at_rest,
    hostile,
    violations,
)
from pairs import (
    EVENTS,
    SECONDS,
    Pair,
    Task,
    deadline,
    path_of,
    poll_mask,
    raises_errno,
    read_exactly,
    until,
)

import fastsock

ROLES = pytest.mark.parametrize("publishes", [False, True], ids=["seeker", "publisher"])
"""Which part the hostile peer has in the rendezvous, and so which half is its own."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(40):
        yield


@pytest.fixture
def moved(publishes: bool, healthy: Pair) -> Iterator[Peer]:
    """A hostile peer that behaved until now: both directions are on the ring. Nothing is left of it afterwards."""
    before = holdings_at_rest()
    with hostile(publishes) as peer:
        peer.meet()
        peer.move()
        peer.consent()
        peer.victim.sendall(b"s")
        assert peer.region.commit(1 - peer.side, 0) == (1, 1)
        assert peer.region.inlined(1 - peer.side, 0) == b"s"
        peer.post(b"r", ack=1)
        assert peer.victim.recv(1) == b"r"
        assert path_of(peer.victim) == "ring"
        yield peer
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


def assert_violated(peer: Peer, caplog: pytest.LogCaptureFixture, violation: str) -> None:
    """It was reset and told: the peer sees RST, the log names what it did, and later calls find nobody."""
    assert violations(caplog) == [violation]
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - which call fails is the kernel's to say
        while peer.tcp.recv(1 << 16):
            pass
    assert peer.victim.recv(1) == b""
    with pytest.raises(BrokenPipeError):
        peer.victim.send(b"x")


ARENA_ENDS = 1536 + 2 * 4 * 1024 + 2 * SPARES
"""Of half 1, from its beginning, with the 4 descriptors of 1,024 bytes that the hostile peer asks for."""

LIES = {
    "length 0": ({"length": 0}, "descriptor with an impossible length"),
    "length beyond the chunk": ({"length": 1025, "state": SEALED}, "descriptor with an impossible length"),
    "longest length": ({"length": 0xFFFF, "state": SEALED}, "descriptor with an impossible length"),
    "inline beyond the line": ({"length": 49, "state": INLINED}, "descriptor in an impossible state"),
    "state 0": ({"state": 0}, "descriptor in an impossible state"),
    "unknown state": ({"state": 4}, "descriptor in an impossible state"),
    "all bits of the state": ({"state": 0xFF}, "descriptor in an impossible state"),
    "unknown type": ({"type": 9}, "descriptor of an unknown type"),
    "type 0": ({"type": 0}, "descriptor of an unknown type"),
    "sequence ahead": ({"seq": 3}, "descriptor out of sequence"),
    "sequence far behind": ({"seq": 0x80000000}, "descriptor out of sequence"),
    "payload over the arena's end": ({"state": SEALED, "offset": ARENA_ENDS - 3}, "descriptor in an impossible state"),
    "payload far outside": ({"state": SEALED, "offset": 0xFFFFFFFC}, "descriptor in an impossible state"),
    "open payload outside": ({"state": OPEN, "offset": ARENA_ENDS}, "descriptor in an impossible state"),
    "open descriptor too long": ({"state": OPEN, "length": 2000}, "descriptor with an impossible length"),
    "longer than a spare part": ({"state": SEALED, "offset": ARENA_ENDS - SPARES, "length": SPARES // 2 + 1},
                                 "descriptor with an impossible length"),
}


@ROLES
@pytest.mark.parametrize("lie", LIES)
def test_impossible_descriptor(moved, lie, caplog):
    lies, violation = LIES[lie]
    moved.post(b"lies", **lies)
    with raises_errno(104):
        moved.victim.recv(100)
    assert_violated(moved, caplog, violation)


CALLS: dict[str, Callable[[socket.socket], object]] = {
    "recv": lambda sock: sock.recv(10),
    "recv_into": lambda sock: sock.recv_into(bytearray(10)),
    "recvfrom": lambda sock: sock.recvfrom(10),
    "recvmsg": lambda sock: sock.recvmsg(10),
    "peek": lambda sock: sock.recv(10, socket.MSG_PEEK),
    "waitall": lambda sock: sock.recv(10, socket.MSG_WAITALL),
    "dontwait": lambda sock: sock.recv(10, socket.MSG_DONTWAIT),
    "makefile": lambda sock: sock.makefile("rb").read(10),
}


@pytest.mark.parametrize("publishes", [False])
@pytest.mark.parametrize("call", CALLS)
def test_every_receiving_call_says_so(moved, call, caplog):
    moved.post(b"lies", length=0)
    with raises_errno(104):
        CALLS[call](moved.victim)
    assert_violated(moved, caplog, "descriptor with an impossible length")


@ROLES
def test_sleeping_receiver_is_told(moved, caplog):
    reading = Task(moved.victim.recv, 10).until_asleep()
    moved.post(b"lies", type=77)
    with raises_errno(104):
        reading.result()
    assert_violated(moved, caplog, "descriptor of an unknown type")


@ROLES
def test_sound_bytes_before_a_lie_are_delivered(moved, caplog):
    moved.post(b"sound")
    moved.post(b"lies", length=0)
    assert moved.victim.recv(5) == b"sound"
    with raises_errno(104):
        moved.victim.recv(100)
    assert_violated(moved, caplog, "descriptor with an impossible length")


@ROLES
def test_descriptor_that_changes_while_it_is_read(moved, caplog):
    moved.post(b"abcdef")
    assert moved.victim.recv(3) == b"abc"
    moved.posted -= 1
    moved.post(b"abcd")
    with raises_errno(104):
        moved.victim.recv(3)
    assert_violated(moved, caplog, "descriptor changed while it was read")


@ROLES
@pytest.mark.parametrize("ack", [2, 7, 0x7FFFFF00])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "piggybacked"])
def test_ack_of_what_was_never_posted(moved, ack, alone, caplog):
    if alone:
        moved.region.set(1 - moved.side, "acked", ack + 1)
    else:
        moved.post(b"data", ack=ack + 1)
        assert moved.victim.recv(10) == b"data"
    with raises_errno(104):
        for _ in range(10):
            moved.victim.send(b"x" * 600)
    assert_violated(moved, caplog, "ACK of a descriptor never posted")


@ROLES
def test_ack_that_runs_backwards(moved, caplog):
    for number in (1, 2):
        moved.victim.send(b"x" * 1024)
        moved.region.set(1 - moved.side, "acked", number + 1)
    moved.victim.send(b"x" * 1024)
    moved.region.set(1 - moved.side, "acked", 2)
    with raises_errno(104):
        for _ in range(10):
            moved.victim.send(b"x" * 600)
    assert_violated(moved, caplog, "ACK of a descriptor never posted")


@ROLES
def test_piggybacked_ack_older_than_one_seen_is_no_violation(moved, caplog):
    """Packets of two threads may cross."""
    moved.post(b"data", ack=0)
    assert moved.victim.recv(10) == b"data"
    moved.victim.send(b"x" * 1024)
    moved.region.set(1 - moved.side, "acked", 2)
    moved.victim.send(b"x" * 1024)
    assert not violations(caplog)


@ROLES
@pytest.mark.parametrize(
    "fin", [FIN | 0, FIN | 5, FIN | 0xFFFFFFFF, RESET | 9, 1 << 40 | 1, 1, 1 << 63 | 1],
    ids=["behind", "ahead", "far", "reset ahead", "unknown kind", "no kind", "high bit"],
)  # fmt: skip
def test_fin_at_an_impossible_place(moved, fin, caplog):
    moved.region.set(moved.side, "fin", fin)
    moved.wake()
    with raises_errno(104):
        moved.victim.recv(1)
    assert_violated(moved, caplog, "FIN at an impossible place")


@pytest.mark.parametrize("publishes", [False, True])
def test_switch_offset_in_the_past(publishes, healthy, caplog):
    with hostile(publishes) as peer:
        peer.meet()
        peer.region.set(peer.side, "switch_at", 1)
        peer.wake()
        with raises_errno(104):
            peer.victim.recv(1)
        assert_violated(peer, caplog, "switch offset in the past")


@pytest.mark.parametrize("publishes", [False, True])
def test_switch_offset_that_is_never_reached(publishes, healthy, caplog):
    """What comes through the kernel is read as data: the peer's own stream, and its own end."""
    with hostile(publishes) as peer:
        peer.meet()
        peer.region.set(peer.side, "switch_at", 1 << 40)
        peer.post(b"ring")
        peer.send(b"kernel")
        assert peer.victim.recv(6) == b"kernel"
        peer.tcp.shutdown(socket.SHUT_WR)
        assert peer.victim.recv(6) == b""
        assert not violations(caplog)


@ROLES
def test_counts_of_doorbell_bytes_that_were_never_rung(moved):
    """Wrong counts cost the liar its doorbell, and us neither a hang nor another connection's bytes."""
    for rung in (1, 0xFFFFFFFF, 0x80000000, 5):
        moved.region.set(moved.side, "rung", rung)
        moved.post(b"data")
        moved.victim.fileno()
        assert moved.victim.recv(10) == b"data"
        moved.victim.settimeout(0)
        with pytest.raises(BlockingIOError):
            moved.victim.recv(10)


def test_such_counts_where_nothing_lies_above_our_memory():
    """Without randomised addresses our modules are the last thing below the stack. A call that names more memory than
    there is fails there with EFAULT."""
    itself = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "that_were_never_rung"]
    done = subprocess.run(["setarch", "-R", *itself], check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr


@ROLES
def test_sender_that_rings_for_ever(moved):
    """It says that a doorbell byte is about to follow, and none does: a read waits milliseconds for it, not longer."""
    moved.victim.fileno()
    for number in range(5):
        moved.region.set(moved.side, "ringing", 1 if number else 0xFFFFFFFF)
        moved.post(b"data")
        began = time.monotonic()
        assert moved.victim.recv(10) == b"data"
        assert time.monotonic() - began < SECONDS / 2  # (a machine may stand still for a second)


@ROLES
def test_plug_that_the_peer_is_just_taking_out(moved, caplog):
    """It has counted the plug as taken and returned credit, but the bytes still lie there. A doorbell byte gets through
    all the same, and is no violation."""
    half = 1 - moved.side
    moved.victim.fileno()
    moved.victim.settimeout(0)
    moved.region.set(half, "doorbell", EXPOSED)
    with pytest.raises(BlockingIOError):  # noqa: PT012 - which of them finds the ring full is of no concern
        for _ in range(10):
            moved.victim.send(bytes(1 << 20))
    rung = moved.region.get(half, "rung")
    assert rung > 1000  # bytes of the plug
    assert not poll_mask(moved.victim, EVENTS["OUT"])
    moved.region.set(half, "heard", rung)
    moved.region.set(half, "acked", 4)
    assert moved.victim.send(b"x") == 1
    assert moved.region.get(half, "rung") == rung + 1
    assert not poll_mask(moved.victim, EVENTS["OUT"])  # the plug does what it is there for
    assert len(read_exactly(moved.tcp, rung + 1)) == rung + 1
    until(lambda: poll_mask(moved.victim, EVENTS["OUT"]), "the plug is out")
    assert not violations(caplog)


@ROLES
def test_sleep_state_and_limits_that_make_no_sense(moved):
    for value in (0xFFFFFFFF, 0x80000000, 1):
        for half, field in ((1 - moved.side, "limit"), (moved.side, "credit_wait"), (moved.side, "processor"),
                            (moved.side, "limit"), (1 - moved.side, "seen"), (1 - moved.side, "finack")):  # fmt: skip
            moved.region.set(half, field, value)
        moved.post(b"data", ack=moved.posted)
        assert moved.victim.recv(10) == b"data"
        number = moved.posted - 1
        moved.victim.send(b"more")
        until(lambda n=number: moved.region.commit(1 - moved.side, n)[0] == n + 1, "the victim posts")
        moved.region.set(1 - moved.side, "acked", number + 1)


@ROLES
def test_peer_that_stops_reading_its_doorbell(moved, caplog):
    """It says that its descriptor is exposed and that it took every doorbell byte, but takes none."""
    moved.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    moved.victim.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    half = 1 - moved.side
    moved.region.set(half, "doorbell", EXPOSED)
    with raises_errno(104):
        for number in range(1, 2_000_000):
            moved.victim.send(b"x")
            moved.region.set(half, "acked", number + 1)
            moved.region.set(half, "heard", moved.region.get(half, "rung"))
    assert_violated(moved, caplog, "stopped reading its doorbell")


@ROLES
def test_peer_that_says_it_has_gone_and_stays(moved):
    """What is sent then goes to the kernel, which it does not read either: the timeout holds all the same."""
    moved.region.set(1 - moved.side, "doorbell", GONE)
    moved.victim.settimeout(0.2)
    with deadline(5), pytest.raises((TimeoutError, ConnectionResetError)):
        moved.victim.sendall(bytes(50_000_000))


@ROLES
def test_wait_for_credits_after_a_piggybacked_ack(moved):
    """The newest ACK came with DATA, so the one that comes alone is older: that is no news to poll for."""
    before = fastsock.stats().polls_paid
    moved.victim.settimeout(0.04)  # too short to go on in the kernel
    with deadline(5), pytest.raises(TimeoutError):
        moved.victim.sendall(bytes(50_000))
    assert fastsock.stats().polls_paid - before < 10


# ---- mutated while we read


def flip_bytes(peer: Peer, seed: int, seconds: float) -> int:
    """Starts a process that writes random words into the region's lines as fast as it can for a while."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(SECONDS)
        rng = random.Random(seed)
        words = peer.region._words[4]
        first, last = 16, (peer.region.half(1) + 192 + 64 * peer.region.slots) // 4
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(100):
                at = rng.randrange(first, last)
                flipped = words[at] ^ 1 << rng.randrange(32)
                words[at] = rng.choice((0, 1, 2, rng.getrandbits(3), rng.getrandbits(32), flipped))
    finally:
        os._exit(0)


@ROLES
@pytest.mark.parametrize("seed", range(3))
def test_region_mutated_while_we_use_it(moved, seed, caplog):
    """Nothing but errors of the connection: no crash, and no call that outlives its timeout."""
    moved.victim.settimeout(0.05)
    moved.tcp.settimeout(0)
    pid = flip_bytes(moved, seed, 1.0)
    try:
        calls = [
            lambda: moved.victim.recv(5000), lambda: moved.victim.send(b"y" * 3000),
            lambda: moved.victim.send(b"x"), lambda: moved.victim.recv(3, socket.MSG_PEEK),
            lambda: moved.victim.recv(100_000, socket.MSG_TRUNC), moved.victim.fileno,
            lambda: moved.victim.send(b"!", socket.MSG_OOB), lambda: moved.tcp.recv(1 << 20),
            lambda: fastsock.path_of(moved.victim),
        ]  # fmt: skip
        rng = random.Random(seed)
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            try:
                rng.choice(calls)()
            except OSError:
                pass
    finally:
        os.waitpid(pid, 0)


@ROLES
@pytest.mark.parametrize("seed", range(20))
def test_random_descriptors(moved, seed):
    """Posts of random words: each is read, or resets the connection."""
    rng = random.Random(seed)
    moved.victim.settimeout(0.01)
    for _ in range(50):
        moved.post(
            rng.randbytes(rng.randrange(1, 1024)), seq=rng.choice((moved.posted + 1, rng.getrandbits(32))),
            length=rng.choice((1, 48, 1024, rng.getrandbits(16))), type=rng.choice((DATA, DATA, rng.getrandbits(8))),
            state=rng.choice((SEALED, OPEN, rng.getrandbits(8))), offset=rng.choice((0, 3072, rng.getrandbits(32))),
            ack=rng.choice((0, 1, rng.getrandbits(32))),
        )  # fmt: skip
        try:
            while moved.victim.recv(rng.randrange(1, 3000)):
                pass
        except TimeoutError:
            continue
        except ConnectionResetError:
            break
        break
