"""Why a connection is on kernel TCP: each reason there is, recorded in `path_of` and counted in `stats`."""

import contextlib
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from conformance.blocking.processes import Gate, forked
from harness.hostile_peer import Peer, drop_parked, hostile, mapped_regions
from harness.hosts import two_hosts
from harness.pairs import SECONDS, KernelSocket, Pair, listening, path_of, read_exactly, until
from harness.processes import PRELUDE, Process, connect, ended

import fastsock
from fastsock import Path, config
from fastsock._native import control, libc_front

pytestmark = pytest.mark.usefixtures("bounded")


@contextlib.contextmanager
def pair_of(**settings: object) -> Iterator[Pair]:
    """Two fastsock sockets under settings, on kernel TCP so far."""
    with fastsock.configure(**settings), listening() as listener:
        port = listener.getsockname()[1]
        for _ in range(3):  # the first ones count as those to any new port, of which other tests have told something
            with connect(port), listener.accept()[0]:
                pass
        with connect(port) as near, listener.accept()[0] as far:
            yield Pair(near, far, "midstream")


def exchange(pair: Pair, rounds: int = 40) -> None:
    for _ in range(rounds):
        for sender, receiver in (tuple(pair), tuple(pair)[::-1]):
            sender.sendall(b"some bytes")
            assert read_exactly(receiver, 10) == b"some bytes"


def reasons(pair: Pair) -> list[str]:
    """Both ends' reasons, near first; both are on kernel TCP."""
    paths = [fastsock.path_of(sock) for sock in pair]
    assert [path.path for path in paths] == ["tcp", "tcp"]
    return [path.reason for path in paths]


def test_too_few_operations():
    with pair_of(move_after=20) as pair:
        exchange(pair, 3)  # three sends and three receives each; a connect with a timeout asks for its result
        assert reasons(pair) == ["too few operations"] * 2
        exchange(pair)
        pair.check_path()


def test_short_sessions_look_for_their_peer_later():
    """Those with one service: a move does not pay there. One that lives longer moves all the same."""
    with listening() as listener:

        @contextlib.contextmanager
        def session() -> Iterator[Pair]:
            with connect(listener.getsockname()[1]) as near, listener.accept()[0] as far:
                yield Pair(near, far, "midstream")

        def known() -> bool:  # (on a busy machine a short session may be over before its ends have met)
            with session() as pair:
                exchange(pair, 5)
                return {fastsock.path_of(sock).reason for sock in pair} == {"sessions too short to pay"}

        until(known, "the service is known for short sessions")
        with session() as pair:
            exchange(pair, 5)
            assert reasons(pair) == ["sessions too short to pay"] * 2
            before = fastsock.stats().fallback_reasons["sessions too short to pay"]
            pair.check_path()
            assert fastsock.stats().fallback_reasons.get("sessions too short to pay", 0) == before - 2
        for _ in range(50):  # so many that the short ones are forgotten
            with session() as pair:
                exchange(pair, 300)
        with session() as pair:
            exchange(pair, 8)
            # Where sessions are long they begin to look at once again.
            assert "sessions too short to pay" not in [fastsock.path_of(sock).reason for sock in pair]


@pytest.mark.parametrize("publishes", [True, False])
def test_foreign_peer(publishes):
    """After some time, and look-ups, the search ends."""
    with fastsock.configure(_patience_ms=50), hostile(publishes) as peer:
        limit = time.monotonic() + 2 * SECONDS  # a name is published for ten seconds
        while fastsock.path_of(peer.victim) != Path("tcp", "peer does not use fastsock"):
            assert time.monotonic() < limit
            peer.chat()
            time.sleep(0.001)


ADDRESSES = {
    "port": (lambda port: {"ports_excluded": str(port)}, False),
    "port range": (lambda port: {"ports_excluded": f"{port - 1}-{port + 1}"}, False),
    "port not allowed": (lambda port: {"ports_allowed": "1-5"}, False),
    "address": (lambda port: {"addresses_excluded": "127.0.0.1"}, False),
    "network": (lambda port: {"addresses_excluded": "10.0.0.0/8,127.0.0.0/8"}, False),
    "address not allowed": (lambda port: {"addresses_allowed": "::1,192.0.2.0/24"}, False),
    "port allowed": (lambda port: {"ports_allowed": f"1-5,{port}"}, True),
    "network allowed": (lambda port: {"addresses_allowed": "127.0.0.0/8"}, True),
    "another port": (lambda port: {"ports_excluded": "1-5"}, True),
    "another address": (lambda port: {"addresses_excluded": "127.0.0.2,::1"}, True),
}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "mapped"])
@pytest.mark.parametrize("excluded", ADDRESSES)
def test_excluded(excluded, family):
    """A mapped address is excluded as what it means."""
    settings, moves = ADDRESSES[excluded]
    with fastsock.configure(move_after=0), fastsock.socket(family) as listener:
        listener.bind(("::" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        with fastsock.configure(**settings(port)), connect(port) as near, listener.accept()[0] as far:
            pair = Pair(near, far, "midstream")
            exchange(pair)
            if moves:
                pair.check_path()
            else:
                assert reasons(pair) == ["address or port excluded"] * 2


PATHS = {
    "its path": ({"paths_excluded": "{folder}/s"}, False),
    "its folder": ({"paths_excluded": "/none,{folder}"}, False),
    "its folder with a slash": ({"paths_excluded": "{folder}/"}, False),
    "every path": ({"paths_excluded": "/"}, False),
    "a part of its name": ({"paths_excluded": "{folder}/socke,{folder}/s/"}, True),
    "another path": ({"paths_excluded": "{folder}/socket2,@socket,@"}, True),
    "not allowed": ({"paths_allowed": "/none,@"}, False),
    "allowed": ({"paths_allowed": "/none,{folder}"}, True),
    "both": ({"paths_allowed": "{folder}", "paths_excluded": "{folder}/s"}, False),
    "ports and addresses": ({"ports_allowed": "1", "addresses_excluded": "::/0,0.0.0.0/0"}, True),
}
NAMES = {
    "its name": ({"paths_excluded": "@{name}"}, False),
    "every name": ({"paths_excluded": "@"}, False),
    "a part of its name": ({"paths_excluded": "@fastsock-tes"}, True),
    "up to a slash": ({"paths_excluded": "@fastsock-test"}, False),
    "a path": ({"paths_excluded": "/,{name}"}, True),
    "allowed": ({"paths_allowed": "@{name}"}, True),
}


def check_paths(address: str, settings: dict[str, str], moves: bool) -> None:
    with fastsock.configure(move_after=0, **settings), fastsock.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        with fastsock.socket(socket.AF_UNIX) as near:
            near.connect(address)
            with listener.accept()[0] as far:
                pair = Pair(near, far, "midstream")
                exchange(pair)
                if moves:
                    pair.check_path()
                else:
                    assert reasons(pair) == ["address or port excluded"] * 2


@pytest.mark.parametrize("excluded", PATHS)
def test_excluded_by_a_path(excluded: str, tmp_path: pathlib.Path) -> None:
    settings, moves = PATHS[excluded]
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / ("socket" if moves else "s")
    check_paths(str(path), {name: value.format(folder=path.parent) for name, value in settings.items()}, moves)


@pytest.mark.parametrize("excluded", NAMES)
def test_excluded_by_an_abstract_name(excluded: str) -> None:
    settings, moves = NAMES[excluded]
    name = f"fastsock-test/{os.getpid()}"
    check_paths(f"\0{name}", {what: value.format(name=name) for what, value in settings.items()}, moves)


def test_a_client_that_bound_a_path_is_excluded_by_it(tmp_path: pathlib.Path) -> None:
    """Either end may have the path, as either end may have the port."""
    for excluded in ("client", "server"):
        folder = tmp_path / excluded
        folder.mkdir()
        settings = {"move_after": 0, "paths_excluded": f"{folder}/{excluded}"}
        with fastsock.configure(**settings), fastsock.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/server")
            listener.listen(1)
            with fastsock.socket(socket.AF_UNIX) as near:
                near.bind(f"{folder}/client")
                near.connect(f"{folder}/server")
                with listener.accept()[0] as far:
                    pair = Pair(near, far, "midstream")
                    exchange(pair)
                    assert reasons(pair) == ["address or port excluded"] * 2


def test_memory_cap_of_the_one_who_makes_the_region():
    drop_parked()
    with pair_of(move_after=0, memory_cap=0) as pair:
        exchange(pair)
        assert "memory cap reached" in reasons(pair)


def test_memory_cap_of_the_one_who_is_sent_the_region():
    with hostile() as peer, fastsock.configure(memory_cap=0):
        peer.knock()
        memfd = peer.make_region()
        peer.say_hello([memfd])
        for _ in range(20):
            peer.chat()
            time.sleep(0.001)
        assert peer.region["wakeup"] == 0 or not libc_front.describe(peer.victim.fileno())["attached"]
        assert fastsock.path_of(peer.victim).path == "tcp"


def test_memory_cap_counts_what_is_in_memory():
    """Idle connections map more than the cap. When their regions have filled, no other connection moves."""
    drop_parked()
    with fastsock.configure(memory_cap=control.memory_used() + (3 << 20)), contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(pair_of(move_after=0)) for _ in range(5)]
        for pair in pairs:
            exchange(pair)
            pair.check_path()
        for pair in pairs:
            pair.near.sendall(bytes(900_000))  # nobody reads it
        late = stack.enter_context(pair_of(move_after=0))
        with contextlib.suppress(AssertionError):
            exchange(late)
        assert "memory cap reached" in reasons(late)


def test_disabled():
    with pair_of(move_after=0, enabled=0) as pair:
        exchange(pair)
        assert reasons(pair) == ["disabled by settings"] * 2


ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    peer, _ = listener.accept()
    while data := peer.recv(100):
        peer.sendall(data)
"""
ASK = """
import sys
sock = fastsock.socket()
sock.connect((sys.argv[1], int(sys.argv[2])))
for _ in range(20):
    sock.sendall(b"x")
    assert sock.recv(1) == b"x"
print(fastsock.path_of(sock).reason)
"""


def test_peer_on_another_host():
    with two_hosts() as [(near, host), (far, _)]:
        words = ["ip", "netns", "exec", near, sys.executable, "-c", ECHO, host]
        with Process(words) as server:
            ask = ["ip", "netns", "exec", far, sys.executable, "-c", PRELUDE + ASK, host, server.line()]
            path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
            told = ended(ask, PYTHONPATH=path, FASTSOCK_MOVE_AFTER="0").stdout
    assert told == "peer on another host\n"


def test_which_addresses_are_local():
    for text, local in (("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("192.0.2.1", False),
                        ("2001:db8::1", False)):  # fmt: skip
        address = ip_address(text)
        assert (
            libc_front.is_local_address((b"" if address.version == 6 else config.MAPPED) + address.packed) is local
        ), text


@pytest.mark.parametrize("option", [(socket.SO_RCVLOWAT, 2), (60, 1), (42, 0)],
                         ids=["SO_RCVLOWAT", "SO_ZEROCOPY", "SO_PEEK_OFF"])  # fmt: skip
def test_option_that_the_ring_cannot_honour(option):
    with pair_of(move_after=0) as pair:
        with contextlib.suppress(OSError):  # TCP has SO_PEEK_OFF in new kernels
            pair.near.setsockopt(socket.SOL_SOCKET, *option)
        exchange(pair)
        assert fastsock.path_of(pair.near) == Path("tcp", "unsupported socket option")
        assert path_of(pair.far) == "tcp"


def test_shared_with_another_process():
    """While a child may read the kernel's stream the connection stays there; it moves when the child has gone."""
    with pair_of(move_after=4) as pair, Gate() as gate, forked(gate.wait):
        exchange(pair)
        assert reasons(pair) == ["shared with another process"] * 2
        gate.open()


def test_name_is_withdrawn_on_close():
    for leave in (lambda sock: sock.close(), lambda sock: socket.close(sock.detach())):
        with hostile() as peer:
            peer.knock().close()
            leave(peer.victim)
            with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as late, pytest.raises(ConnectionRefusedError):
                late.connect(peer.name)


def test_region_sent_and_not_taken_is_given_back():
    with hostile() as peer:
        before = mapped_regions()
        peer.knock()
        memfd = peer.make_region()
        peer.say_hello([memfd])
        until(peer.answered, "the connection thread takes the region")
        peer.victim.close()
        peer.region.close()
        peer.region = None
        assert mapped_regions() == before


def test_expired_name_does_not_mix_two_connections():
    """The place of a name that nobody claimed in time is given to another connection; the first one must not take
    what is sent there."""
    with hostile() as first:
        first.chat()
        time.sleep(10.5)  # longer than a name is published
        with contextlib.closing(Peer(False)) as second:
            second.knock()
            memfd = second.make_region()
            second.say_hello([memfd])
            until(second.answered, "the connection thread takes the region")
            first.chat()
            assert not libc_front.describe(first.victim.fileno())["attached"], "it took the other connection's region"
            until(second.victim_consents, "the right connection takes it")
