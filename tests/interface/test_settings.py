"""Settings: from keywords and variables, checked, and each with the effect it promises."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import attrs
import pytest
from harness.hostile_peer import drop_parked
from harness.pairs import Pair, Task, deadline, listening, make_pair, read_exactly, until
from harness.processes import connect

import fastsock
from fastsock import SettingError, Settings, config
from fastsock._native import libc_front

# name: a value other than the default, as a keyword and as a variable's text
VALUES: dict[str, tuple[Any, str]] = {
    "enabled": (False, "0"),
    "poll_us": (7, "7"),
    "move_after": (3, "3"),
    "_meeting_ms": (5, "5"),
    "_patience_ms": (50, "50"),
    "window": (64, "64"),
    "ack_threshold": (5, "5"),
    "chunk_size": (4096, "4096"),
    "combine": (False, "no"),
    "combine_limit": (100, "100"),
    "_combine_when_full": (False, "0"),
    "unix_streams": (False, "0"),
    "trust": ("user,root,4294967294", " user, root,4294967294"),
    "rendezvous_dir": ("/tmp/none-such\udcff", " /tmp/none-such\udcff "),
    "tcpdump": (False, "0"),
    "ports_allowed": (((80, 80), (8000, 8100)), "80,8000-8100"),
    "ports_excluded": (((22, 22),), " 22 "),
    "addresses_allowed": ((ip_network("127.0.0.0/8"), ip_network("::1")), "127.0.0.0/8, ::1"),
    "addresses_excluded": ((ip_network("10.0.0.1"),), "10.0.0.1"),
    "paths_allowed": (("/run/postgresql", "@name"), " /run/postgresql, @name"),
    "paths_excluded": (("/tmp/\udcff",), "/tmp/\udcff"),
    "memory_cap": (1 << 20, "1048576"),
}

RANGES = {
    "poll_us": (0, 1_000_000),
    "move_after": (0, 1_000_000),
    "_meeting_ms": (0, 10_000),
    "_patience_ms": (1, 10_000),
    "window": (1, 1024),
    "ack_threshold": (1, 1023),
    "chunk_size": (1024, 32768),
    "combine_limit": (1, 32768),
    "memory_cap": (0, 1 << 46),
}

WRONG = {
    "enabled": ["2", "", "maybe", None],
    "poll_us": ["x", "1.5", None, ""],
    "trust": ["no such user", "", "any,user", "user,", "-1", "4294967295", [], range(65), "\0", None],
    "ports_allowed": ["80-", "http", "65536", "9-8", "-5", "1,2,x"],
    "addresses_excluded": ["localhost", "127.0.0.0/33", "::g", "1.2.3"],
    "chunk_size": ["1025", "4000"],
    "rendezvous_dir": ["relative", "/" * 87, "\ud800"],
    "paths_allowed": ["/" * 108],
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = config.active()
    with deadline(50):
        yield
    fastsock.unpatch()
    config.use(before)


def test_the_table_of_this_test_is_complete():
    assert list(VALUES) == list(vars(Settings()))


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        Settings().window = 3


@pytest.mark.parametrize("name", VALUES)
def test_keyword_variable_and_precedence(name, monkeypatch):
    value, text = VALUES[name]
    default = getattr(Settings(), name)
    assert value != default
    if name != "enabled":
        fastsock.patch(**{name: value})
        assert getattr(config.active(), name) == value
    monkeypatch.setenv(f"FASTSOCK_{name.upper()}", text)
    fastsock.patch()
    assert getattr(config.active(), name) == value
    fastsock.patch(**{name: default})
    assert getattr(config.active(), name) == default
    with fastsock.configure(**{name: text}):
        assert getattr(config.active(), name) == value
    assert getattr(config.active(), name) == default


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("way", ["keyword", "variable"])
def test_out_of_range_names_setting_value_and_range(name, way, monkeypatch):
    low, high = RANGES[name]
    for value in (low - 1, high + 1):
        with pytest.raises(SettingError) as caught:  # noqa: PT012 - which call fails is the kernel's to say
            if way == "keyword":
                fastsock.patch(**{name: value})
            else:
                monkeypatch.setenv(f"FASTSOCK_{name.upper()}", str(value))
                fastsock.patch()
        error = caught.value
        assert isinstance(error, ValueError)
        assert (error.setting, error.value, error.permitted) == (name, value, f"{low} to {high}")
        for part in (name, f"FASTSOCK_{name.upper()}", str(value), str(low), str(high)):
            assert part in str(error)
        assert not fastsock.is_patched()


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_nonsense_names_setting_and_value(name, value):
    with pytest.raises(SettingError) as caught:
        Settings(**{name: value})
    assert caught.value.setting == name
    assert repr(caught.value.value) in str(caught.value)


@pytest.mark.parametrize(("threshold", "window"), [(16, 16), (32, 16), (2, 2)])
def test_threshold_must_be_less_than_the_window(threshold, window):
    with pytest.raises(SettingError, match=f"ack_threshold .* is {threshold}.* 1 to {window - 1}"):
        Settings(ack_threshold=threshold, window=window)


def test_settings_that_do_not_exist():
    for call in (fastsock.patch, lambda **kw: fastsock.configure(**kw).__enter__()):
        with pytest.raises(TypeError, match="windows"):
            call(windows=3)
    assert not fastsock.is_patched()


@pytest.mark.parametrize("way", ["keyword", "variable"])
def test_disabled_replaces_nothing(way, monkeypatch):
    originals = socket.socket, os.read, os.close, os._exit
    if way == "variable":
        monkeypatch.setenv("FASTSOCK_ENABLED", "0")
    fastsock.patch(**({"enabled": 0} if way == "keyword" else {}))
    assert (socket.socket, os.read, os.close, os._exit) == originals
    assert not fastsock.is_patched()


# ---- what each does


@contextlib.contextmanager
def counted(**settings: Any) -> Iterator[tuple[Pair, Any]]:
    """A pair on the ring under settings, and a function for what was counted since."""
    drop_parked()
    with fastsock.configure(**settings), make_pair("ring") as pair:
        before = attrs.asdict(fastsock.stats())

        def since() -> dict[str, int]:
            now = attrs.asdict(fastsock.stats())
            return {n: now[n] - before[n] for n in now if isinstance(now[n], int)}

        yield pair, since


def burst(pair: Pair, count: int = 100, size: int = 100) -> None:
    """Small sends, one after the other, of which nothing is read meanwhile."""
    for _ in range(count):
        pair.near.sendall(bytes(size))
    assert read_exactly(pair.far, count * size) == bytes(count * size)


def test_combining():
    with counted(window=1024) as (pair, since):
        burst(pair)
        assert since()["sends_combined"] > 90
        assert since()["messages_sent"] < 10
    for off in ({"combine": 0}, {"combine_limit": 99}):
        with counted(window=1024, **off) as (pair, since):
            burst(pair)
            assert since()["sends_combined"] == 0
            assert since()["messages_sent"] == 100


def test_last_quarter_of_the_window_combines_unless_that_is_off_too():
    """With 8 descriptors and nothing read, the first 6 sends take one each; the others share the last two, or wait."""
    for settings, combined in (({}, True), ({"_combine_when_full": 0}, False)):
        with counted(window=8, ack_threshold=1, combine=0, **settings) as (pair, since):
            pair.near.setblocking(False)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while sent < 100:
                    sent += pair.near.send(b"x")
            assert (since()["sends_combined"] > 0) is combined
            assert (sent == 100) is combined
            assert combined or sent <= 8
            assert read_exactly(pair.far, sent) == b"x" * sent


def test_nodelay_turns_combining_off():
    with counted(window=1024) as (pair, since):
        pair.near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        burst(pair)
        assert since()["sends_combined"] == 0
        pair.near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        burst(pair)
        assert since()["sends_combined"] > 90


def one_way(pair: Pair, count: int) -> None:
    for _ in range(count):
        pair.near.sendall(b"x")
        assert pair.far.recv(1) == b"x"


def test_delayed_acknowledgement():
    for settings, expected in (({"ack_threshold": 1}, 160), ({}, 10), ({"ack_threshold": 4}, 40)):
        with counted(poll_us=0, **settings) as (pair, since):
            one_way(pair, 160)
            assert abs(since()["acks_alone"] - expected) <= 2, settings
            assert since()["acks_piggybacked"] <= 1  # of the move itself


def test_piggybacked_acknowledgement():
    with counted() as (pair, since):
        for _ in range(100):
            one_way(pair, 1)
            pair.far.sendall(b"y")
            assert pair.near.recv(1) == b"y"
        assert since()["acks_piggybacked"] >= 180  # some go alone, in case nobody reads the DATA
        assert since()["acks_alone"] <= 20


@pytest.mark.parametrize(("window", "chunk"), [(1, 1024), (2, 1024), (5, 2048), (32, 32768)])
def test_window_and_chunk_bound_what_lies_unread(window, chunk):
    with counted(window=window, chunk_size=chunk, ack_threshold=1, _combine_when_full=False) as (pair, since):
        pair.near.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += pair.near.send(bytes(chunk))
        assert window * chunk - chunk <= sent <= window * chunk
        assert since()["messages_sent"] <= window
        assert read_exactly(pair.far, sent) == bytes(sent)


def test_recycled_region_has_the_geometry_of_the_settings():
    """Settings changed since count for the connections to come."""
    drop_parked()
    for settings, expected in (({}, 32), ({"window": 8, "ack_threshold": 2}, 8), ({}, 32)):
        with fastsock.configure(**settings), make_pair("ring") as pair:
            assert [libc_front.describe(sock.fileno())["window"] for sock in pair] == [expected] * 2


def ping_pong(pair: Pair) -> None:
    def echo() -> None:
        for _ in range(200):
            pair.far.sendall(read_exactly(pair.far, 1))

    echoing = Task(echo)
    for _ in range(200):
        pair.near.sendall(b"x")
        assert pair.near.recv(1) == b"x"
    echoing.result()


def test_polling():
    with counted(poll_us=0) as (pair, since):
        ping_pong(pair)
        assert since()["polls_paid"] == since()["polls_unpaid"] == since()["poll_unpaid_ns"] == 0
        assert since()["doorbells_rung"] > 0
        assert since()["sleeps"] > 0
        assert since()["system_calls"] >= since()["sleeps"] + since()["doorbells_rung"]
    if len(os.sched_getaffinity(0)) > 1:
        with counted(poll_us=1000) as (pair, since):

            def polled() -> bool:
                ping_pong(pair)
                return since()["polls_paid"] + since()["polls_unpaid"] > 0

            until(polled, "a wait polls")


@pytest.mark.parametrize("move_after", [0, 5, 20])
def test_move_after(move_after):
    """It never moves before that many operations at each end, and does soon afterwards."""
    with (
        fastsock.configure(move_after=move_after),
        listening() as listener,
        connect(listener.getsockname()[1]) as near,
        listener.accept()[0] as far,
    ):

        def round_trip() -> bool:
            one_way(Pair(near, far, ""), 1)
            one_way(Pair(far, near, ""), 1)
            return fastsock.path_of(near).path == "ring"

        for _ in range(move_after // 2):
            assert not round_trip()
        until(round_trip, "it has moved")


def test_meeting_ms():
    """The only operation of each end is on the ring: each waits for the other to join."""
    with fastsock.configure(move_after=0, _meeting_ms=10_000), listening() as listener, fastsock.socket() as near:
        near.connect(listener.getsockname())  # it waits there: with a timeout it would ask for an error, an operation
        far = listener.accept()[0]
        received = Task(far.recv, 10)
        near.sendall(b"first byte")
        assert received.result() == b"first byte"
        assert fastsock.path_of(near) == fastsock.Path("ring", "sending")
        assert fastsock.path_of(far) == fastsock.Path("ring", "receiving")
        far.close()


def test_meeting_ms_is_no_longer_than_it_says():
    with fastsock.configure(move_after=0, _meeting_ms=100), listening() as listener, fastsock.socket() as near:
        near.connect(listener.getsockname())
        began = time.monotonic()
        for _ in range(1000):
            near.sendall(b"nobody has accepted")
        assert 0.1 < time.monotonic() - began < 5


def test_meeting_ms_is_not_spent_on_a_peer_that_has_ended():
    with fastsock.configure(move_after=0, _meeting_ms=10_000), listening() as listener:
        connect(listener.getsockname()[1]).close()
        with listener.accept()[0] as far:
            began = time.monotonic()
            far.shutdown(socket.SHUT_WR)
            assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("trust", "text", "numbers"),
    [
        ("user", "user", ["user"]),
        ("any", "any", ["any"]),
        (["user", "root", 7, "7"], "user,root,7,7", ["user", "0", "7"]),
        ("root", "root", ["0"]),
    ],
)
def test_the_users_that_are_trusted_are_looked_up_once(trust: object, text: str, numbers: list[str]) -> None:
    """From then on they are numbers of this user namespace: what is handed on names nobody in another one."""
    space = os.stat("/proc/self/ns/user").st_ino
    settings = Settings(**{**vars(Settings(trust=trust)), "poll_us": 3})
    assert settings.trust == text
    said = [word if word in ("user", "any") else f"{word}@{space}" for word in numbers]
    assert settings.trust.numbers.split(",") == said
    again = Settings(trust=settings.trust.numbers)
    assert again.trust.numbers == settings.trust.numbers
    assert Settings(trust=f"7@1,user,8@{space}").trust.numbers == f"user,8@{space}"
    assert Settings(trust="7@1").trust.numbers == "7@1"
