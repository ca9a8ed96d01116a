"""Calls that end with a part done: what each says of it, what has arrived by then, and what the next call says."""

import contextlib
import functools
import importlib
import os
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness.hostile_peer import events
from harness.pairs import KINDS, SECONDS, Pair, Task, leave, make_pair, payload, reset, until, when_main_sleeps

SO_RCVTIMEO, SO_SNDTIMEO = 20, 21
LIMIT, LONGER = 0.15, 1.0
"""Seconds that a call waits here where something limits its wait; and where the peer goes on, which load delays."""
DATA = payload(20 << 20)
"""More than a connection takes without a reader."""
PART = payload(100_000, 1)
"""What there is of more that a receive asks for."""

with tempfile.TemporaryFile(buffering=0) as whole:
    whole.write(DATA)
    FILE = os.dup(whole.fileno())


def send_file(sock: socket.socket) -> int:
    with open(FILE, "rb", closefd=False) as file:
        try:
            return sock.sendfile(file)
        finally:
            assert file.tell() > 0


def recv_into(sock: socket.socket) -> bytes:
    room = bytearray(2 * len(PART))
    return bytes(room[: sock.recv_into(room, 0, socket.MSG_WAITALL)])


def recvmsg_into(sock: socket.socket) -> bytes:
    rooms = [bytearray(len(PART)), bytearray(len(PART))]
    got = sock.recvmsg_into(rooms, 0, socket.MSG_WAITALL)[0]
    return b"".join(rooms)[:got]


def peek(sock: socket.socket) -> bytes:
    """What it saw is received then."""
    seen = sock.recv(2 * len(PART), socket.MSG_PEEK | socket.MSG_WAITALL)
    return sock.recv(len(seen)) if seen else seen


def readv(sock: socket.socket) -> bytes:
    room = bytearray(2 * len(PART))
    return bytes(room[: os.readv(sock.fileno(), [room])])


SENDS: dict[str, Callable[[socket.socket], Any]] = {
    "send": lambda sock: sock.send(DATA),
    "sendall": lambda sock: sock.sendall(DATA),
    "sendto": lambda sock: sock.sendto(DATA, sock.getpeername()),
    "sendmsg": lambda sock: sock.sendmsg([DATA[:100], DATA[100:]]),
    "os.write": lambda sock: os.write(sock.fileno(), DATA),
    "os.writev": lambda sock: os.writev(sock.fileno(), [DATA[:100], DATA[100:]]),
    "os.sendfile": lambda sock: os.sendfile(sock.fileno(), FILE, 0, len(DATA)),
    "sendfile": send_file,
}
RECEIVES: dict[str, Callable[[socket.socket], bytes]] = {
    "recv": lambda sock: sock.recv(2 * len(PART)),
    "recv all": lambda sock: sock.recv(2 * len(PART), socket.MSG_WAITALL),
    "recv_into all": recv_into,
    "peek all": peek,
    "recvmsg_into all": recvmsg_into,
    "recvfrom all": lambda sock: sock.recvfrom(2 * len(PART), socket.MSG_WAITALL)[0],
    "os.read": lambda sock: os.read(sock.fileno(), 2 * len(PART)),
    "os.readv": readv,
}
WITHOUT_PART = [RECEIVES[name] for name in ("recv", "os.read", "os.readv")]
"""They return what there is, and wait only for the first byte."""


class Interrupt(Exception):
    """What a handler raises."""


# The reasons to stop early


def by_option(limit: float, sock: socket.socket) -> None:
    seconds, rest = divmod(int(limit * 1e6), 1_000_000)
    for option in (SO_RCVTIMEO, SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, rest))


def signal_main(*_: object) -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reason:
    before: Callable[[socket.socket], object] = lambda near: None
    """What is set before the call."""
    meanwhile: Callable[[socket.socket, socket.socket], object] | None = None
    """What is done while it waits."""
    beside: bool = False
    """Another thread is there from the start."""
    pace: float | None = None
    """The peer goes on from the start, so many seconds after each piece."""
    goes_on: bool = False
    """The peer goes on behind `meanwhile`, as the call does not end by it."""
    ends: bool = False
    """The connection is over then."""


SHORT = functools.partial(by_option, LIMIT)
REASONS = {
    "option": Reason(SHORT),
    "option, beside a thread": Reason(SHORT, beside=True),
    "option, peer goes on": Reason(functools.partial(by_option, LONGER), pace=LONGER / 10),
    "option, peer leaves": Reason(SHORT, lambda near, far: leave(far)),
    "option, own end leaves": Reason(SHORT, lambda near, far: leave(near)),
    "timeout": Reason(lambda near: near.settimeout(LIMIT)),
    "timeout, peer goes on": Reason(lambda near: near.settimeout(LIMIT), pace=LIMIT / 3),
    "timeout, peer leaves": Reason(lambda near: near.settimeout(LIMIT), lambda near, far: leave(far)),
    "non-blocking": Reason(lambda near: near.setblocking(False)),
    "O_NONBLOCK": Reason(lambda near: os.set_blocking(near.fileno(), False)),
    "handler raises": Reason(meanwhile=signal_main),
    "handler returns": Reason(meanwhile=signal_main, goes_on=True),
    "peer resets": Reason(meanwhile=lambda near, far: reset(far), ends=True),
    "peer ends": Reason(meanwhile=lambda near, far: far.close(), ends=True),
    "peer ends its stream": Reason(meanwhile=lambda near, far: far.shutdown(socket.SHUT_WR), goes_on=True),
}
ENDLESS = {("sendfile", name) for name in REASONS if name.startswith(("option", "O_", "non"))} - {
    ("sendfile", "option, peer goes on")
} | {("sendfile", "timeout, peer goes on")}
"""It refuses a socket that does not block. Where the kernel's call says EAGAIN, it waits for room, by `select`."""


@contextlib.contextmanager
def happening(reason: Reason, pair: Pair, peer_goes_on: Callable[[], Any]) -> Iterator[list[Task]]:
    """Around a call of the main thread. The task that does what the peer does, if it does anything."""
    near, far = pair
    handled, over = threading.Event(), threading.Event()

    def handle(*_: object) -> None:
        handled.set()
        if not reason.goes_on:
            raise Interrupt

    def act() -> Any:
        assert reason.meanwhile is not None
        reason.meanwhile(near, far)
        if reason.goes_on:
            if reason.meanwhile is signal_main:
                assert handled.wait(SECONDS)
            return peer_goes_on()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        reason.before(near)
        tasks = [when_main_sleeps(act)] if reason.meanwhile else [Task(peer_goes_on)] if reason.pace else []
        if reason.beside:
            Task(over.wait)
        yield tasks
    finally:
        over.set()
        signal.signal(signal.SIGUSR1, before)


def said(call: Callable[[socket.socket], Any], sock: socket.socket) -> Any:
    try:
        return call(sock)
    except (OSError, Interrupt) as error:
        return type(error), error.args


def amount(result: Any, whole: int) -> Any:
    """How much of so many bytes was done; or what else was returned or raised."""
    if not isinstance(result, int):
        return result
    return "all" if result == whole else "part" if result else "nothing"


def rest_of(peer: socket.socket, pace: float | None = None) -> bytes:
    """All that comes, a piece at a time."""
    got = bytearray()
    while piece := peer.recv(1 << 19):
        got += piece
        time.sleep(pace or 0)
    return bytes(got)


def sending(pair: Pair, call: Callable[[socket.socket], Any], reason: Reason) -> Any:
    """What a send says, how much arrives, and what the calls behind it say of a connection that is over."""
    near, far = pair
    with happening(reason, pair, lambda: rest_of(far, reason.pace)) as tasks:
        result = said(call, near)
        near.settimeout(None)
        if reason.ends:
            tasks[0].result()
            behind = [said(lambda sock: sock.send(b"x"), near) for _ in range(2)]
            return amount(result, len(DATA)), behind, said(lambda sock: sock.recv(1), near)
        near.shutdown(socket.SHUT_WR)
        arrived = next((task.result() for task in tasks), None) or rest_of(far)
    assert DATA.startswith(arrived)
    assert not isinstance(result, int) or result == len(arrived)
    return amount(result, len(DATA)), amount(len(arrived), len(DATA))


def receiving(pair: Pair, call: Callable[[socket.socket], Any], reason: Reason) -> Any:
    """What a receive says of which a part is there, and what the calls behind it say."""
    near, far = pair
    sent = bytearray()

    def send_on() -> None:
        for _ in range(40 if reason.pace else 1):
            sent.extend(b"+")
            far.sendall(b"+")
            time.sleep(reason.pace or 0)

    if reason.meanwhile is None or call not in WITHOUT_PART:
        far.sendall(PART)
        sent.extend(PART)
        until(lambda: len(near.recv(len(PART), socket.MSG_PEEK)) == len(PART), "it is there")
    shut = reason is REASONS["peer ends its stream"]
    with happening(reason, pair, (lambda: None) if shut else send_on) as tasks:
        result = said(call, near)
        for task in tasks:
            task.result()
    near.setblocking(True)
    by_option(0, near)
    got = result if isinstance(result, bytes) else b""
    if reason.ends:
        behind = [said(lambda sock: sock.recv(1), near) for _ in range(2)]
        return amount(len(got), 2 * len(PART)) if got else result, behind
    if not shut:
        far.shutdown(socket.SHUT_WR)
    rest = rest_of(near)
    assert sent.endswith(rest) if result == (Interrupt, ()) else got + rest == sent
    return amount(len(got), 2 * len(PART)) if got else result


@functools.cache
def on_tcp(how: Callable[..., Any], call: Callable[[socket.socket], Any], name: str) -> Any:
    with make_pair("kernel") as pair:
        return how(pair, call, REASONS[name])


@pytest.fixture(params=[kind for kind in KINDS if kind != "kernel"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


CASES = [
    pytest.param(how, call, reason, id=f"{name}-{reason}")
    for how, calls in ((sending, SENDS), (receiving, RECEIVES))
    for name, call in calls.items()
    for reason in REASONS
    if (name, reason) not in ENDLESS | {("peek all", "handler returns"), ("peek all", "handler raises")}
]
"""A peek for all sleeps shortly and looks again (docs/limitations.md): no sleep of it can be waited for here."""


@pytest.mark.parametrize(("how", "call", "name"), CASES)
def test_a_call_that_stops_early(
    pair: Pair, how: Callable[..., Any], call: Callable[[socket.socket], Any], name: str
) -> None:
    """The same is done, said, and said after it."""
    assert how(pair, call, REASONS[name]) == on_tcp(how, call, name)


def test_a_peek_for_all_that_a_handler_ends(pair: Pair) -> None:
    near, far = pair
    far.sendall(PART)

    def handle(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        with pytest.raises(Interrupt):
            near.recv(2 * len(PART), socket.MSG_PEEK | socket.MSG_WAITALL)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(near.recv(len(PART), socket.MSG_WAITALL)) == len(PART)


@pytest.mark.parametrize("name", ["option", "option, peer goes on"])
def test_a_sendall_that_stops_early_over_a_bridge(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The peer leaves with more unread than the kernel takes, while the call waits."""
    data, goes_on = payload(60 << 20), REASONS[name].pace is not None
    settings = {"window": 1024, "memory_cap": 1 << 30}
    with importlib.import_module("fastsock").configure(**settings), make_pair("ring") as (near, far):

        def act() -> bytes:
            leave(far)
            return rest_of(far, LONGER / 50) if goes_on else b""

        REASONS[name].before(near)
        with caplog.at_level("DEBUG", "fastsock"):
            leaving = when_main_sleeps(act)
            result = said(lambda sock: sock.sendall(data), near)
            near.shutdown(socket.SHUT_WR)
            arrived = leaving.result() + rest_of(far)
            bridged = events(caplog, "fastsock.bridge")
    assert bridged
    if goes_on:
        assert (result, len(arrived)) == (None, len(data))
    else:
        assert result[0] is BlockingIOError
        assert 0 < len(arrived) < len(data)
    assert data.startswith(arrived)
