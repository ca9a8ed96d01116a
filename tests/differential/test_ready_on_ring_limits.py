"""What stands for the functions of `select` with the setting ``ready_on_ring``, at the limits: few events for many,
odd times, numbers that are closed, wrong arguments. The kernel's own functions pass the same tests."""

import contextlib
import gc
import inspect
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from select import EPOLLIN, POLLIN, POLLNVAL
from typing import Any

import pytest
from pairs import KINDS, SECONDS, Pair, Task, make_pair, move, number_of

pytestmark = pytest.mark.usefixtures("own_settings")

KERNEL = {"select": select.select, "poll": select.poll, "epoll": select.epoll}
"""The originals, taken before any test patches the module."""
write = os.write


@pytest.fixture(params=["kernel", "ring", "ring-nopoll"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair of a patched program; the kernel's own pair waits in the kernel's own calls."""
    with contextlib.ExitStack() as stack:
        if request.param != "kernel":
            import fastsock

            fastsock.patch(ready_on_ring=1, **KINDS[request.param].settings)
            stack.callback(fastsock.unpatch)
        pair = stack.enter_context(make_pair(request.param))
        if KINDS[request.param].moves:
            move(*pair)
        yield pair


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


# ---- few events for many ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("seconds", [0, SECONDS])
def test_nobody_starves_behind_others_that_stay_ready(pair: Pair, most: int, seconds: float) -> None:
    with contextlib.ExitStack() as stack, select.epoll() as epoll:
        numbers = set()
        for _ in range(4):
            reads, writes = os.pipe()
            stack.callback(os.close, reads)
            stack.callback(os.close, writes)
            os.write(writes, b"x")
            epoll.register(reads, EPOLLIN)
            numbers.add(reads)
        for sock in pair:
            sock.sendall(b"x")
        for sock in pair:
            assert select.select([sock], [], [], SECONDS)[0]
            epoll.register(sock, EPOLLIN)
            numbers.add(number_of(sock))
        told = set()
        for _ in range(100):
            few = epoll.poll(seconds, most)
            assert 0 < len(few) <= most
            told |= {number for number, _ in few}
        assert told == numbers


def test_one_event_of_a_ready_file_is_not_lost_to_a_ready_connection(pair: Pair, pipe: tuple[int, int]) -> None:
    """An edge is told once: who is told of the connection instead is told of it later."""
    reads, writes = pipe
    with select.epoll() as epoll:
        epoll.register(pair.near, EPOLLIN)
        epoll.register(reads, EPOLLIN | select.EPOLLET)
        pair.far.sendall(b"x")
        for _ in range(50):
            os.write(writes, b"x")
            told: set[int] = set()
            for _ in range(50):
                told |= {number for number, _ in epoll.poll(SECONDS, 1)}
            assert told == {reads, number_of(pair.near)}


# ---- numbers that are closed -----------------------------------------------------------------------------------


def test_a_number_that_is_closed_while_select_sleeps_is_ready(pair: Pair, pipe: tuple[int, int]) -> None:
    reads, _ = pipe
    asked = [reads, pair.near]
    waiting = Task(select.select, asked, [], [reads], SECONDS).until_asleep()
    os.close(reads)
    pair.far.sendall(b"x")
    assert waiting.result() == (asked, [], [reads])


def test_a_number_that_is_closed_before_select_is_an_error(pair: Pair, pipe: tuple[int, int]) -> None:
    number = os.dup2(pipe[0], 900)  # (a low one may be that of the event set, which the first call that waits makes)
    os.close(number)
    for seconds in (0, 0.01, SECONDS):
        with pytest.raises(OSError, match="Bad file descriptor"):
            select.select([pair.near, number], [], [], seconds)


def test_a_number_that_is_closed_while_poll_sleeps_is_told(pair: Pair, pipe: tuple[int, int]) -> None:
    reads, _ = pipe
    poll = select.poll()
    poll.register(reads, POLLIN)
    poll.register(pair.near, POLLIN)
    waiting = Task(poll.poll, SECONDS * 1000).until_asleep()
    os.close(reads)
    pair.far.sendall(b"x")
    assert waiting.result() == [(reads, POLLNVAL), (number_of(pair.near), POLLIN)]


# ---- times -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-1e-9, -1e-12, -5e-324, -0.0009, -0.0, 0])
def test_a_time_that_is_no_millisecond_below_zero_waits_for_nothing(pair: Pair, seconds: float) -> None:
    with select.epoll() as epoll:
        epoll.register(pair.near, EPOLLIN)
        assert Task(epoll.poll, seconds).result() == []


@pytest.mark.parametrize("seconds", [-0.001, -0.0011, -1, -2147483.648, None])
def test_a_time_of_a_millisecond_below_zero_has_no_end(pair: Pair, seconds: float | None) -> None:
    with select.epoll() as epoll:
        epoll.register(pair.near, EPOLLIN)
        waiting = Task(epoll.poll, seconds).until_asleep()
        pair.far.sendall(b"x")
        assert waiting.result() == [(number_of(pair.near), EPOLLIN)]


@pytest.mark.parametrize("pair", ["ring", "ring-nopoll"], indirect=True)
def test_an_event_that_means_nothing_makes_no_wait_longer(pair: Pair) -> None:
    """A doorbell byte that nobody has rung stays on the kernel connection: its epoll tells of it in each call."""
    with select.epoll() as epoll:
        epoll.register(pair.near, EPOLLIN)
        assert epoll.poll(0.01) == []
        write(number_of(pair.far), b"!")
        for _ in range(3):
            assert Task(epoll.poll, 0.05).result() == []


# ---- what they say that they are -------------------------------------------------------------------------------


def shown(select_: Any, poll: Any, epoll: Any) -> list[Any]:
    """What a program sees of the classes and functions, without addresses."""
    with epoll() as one:
        objects = [repr(each).partition(" at 0x")[0] for each in (one, poll(), one.poll, poll().poll)]
    classes = [(repr(kind), kind.__module__, kind.__name__, kind.__qualname__) for kind in (epoll, type(poll()))]
    functions = [(each.__module__, each.__name__, each.__qualname__) for each in (select_, poll)]
    signatures = [
        str(inspect.signature(each))
        for each in (epoll.poll, epoll.register, epoll.modify, epoll.unregister, epoll.close, epoll.fileno)
    ]
    return [objects, classes, functions, signatures]


@pytest.mark.parametrize("pair", ["ring"], indirect=True)
def test_they_look_like_the_kernels(pair: Pair) -> None:
    assert shown(select.select, select.poll, select.epoll) == shown(*KERNEL.values())


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "no size": lambda make, sock: make("a"),
    "a size of nothing": lambda make, sock: make(0),
    "a negative size": lambda make, sock: make(-2),
    "half a size": lambda make, sock: make(1.5),
    "too large a size": lambda make, sock: make(1 << 40),
    "unknown flags": lambda make, sock: make(-1, 5),
    "no flags": lambda make, sock: make(-1, "a"),
    "too many arguments": lambda make, sock: make(-1, 0, 0),
    "an unknown argument": lambda make, sock: make(size=1),
    "the number of another by a name": lambda make, sock: make(_fd=999),
    "fromfd: no number": lambda make, sock: make.fromfd("a"),
    "fromfd: half a number": lambda make, sock: make.fromfd(1.5),
    "fromfd: too large a number": lambda make, sock: make.fromfd(1 << 40),
    "fromfd: none": lambda make, sock: make.fromfd(),
    "a class of that class": lambda make, sock: type("Derived", (make,), {}),
    "register: no descriptor": lambda make, sock: make().register("a"),
    "register: a negative one": lambda make, sock: make().register(-1),
    "register: no events": lambda make, sock: make().register(sock, "a"),
    "register: half events": lambda make, sock: make().register(sock, 1.5),
    "register: nothing": lambda make, sock: make().register(),
    "modify: no events": lambda make, sock: make().modify(sock, "a"),
    "modify: half events": lambda make, sock: make().modify(sock, 1.5),
    "modify: unknown": lambda make, sock: make().modify(sock, 1),
    "unregister: unknown": lambda make, sock: make().unregister(sock),
    "poll: a time of no kind": lambda make, sock: make().poll("a"),
    "poll: no time": lambda make, sock: make().poll(float("nan")),
    "poll: too long": lambda make, sock: make().poll(2147483.648),
    "poll: much too long": lambda make, sock: make().poll(1e30),
    "poll: no end": lambda make, sock: make().poll(float("inf")),
    "poll: a long number": lambda make, sock: make().poll(10**30),
    "poll: just too long for nanoseconds": lambda make, sock: make().poll(9223372037),
    "poll: far below zero": lambda make, sock: make().poll(-2147483.649),
    "poll: too far below zero": lambda make, sock: make().poll(-(10**30)),
    "poll: no events": lambda make, sock: make().poll(0, 0),
    "poll: fewer events": lambda make, sock: make().poll(0, -2),
    "poll: a number of events of no kind": lambda make, sock: make().poll(0, "a"),
    "poll: half an event": lambda make, sock: make().poll(0, 1.5),
    "poll: too many events": lambda make, sock: make().poll(0, 1 << 40),
    "poll: far too many events": lambda make, sock: make().poll(0, 1 << 70),
    "poll: an unknown argument": lambda make, sock: make().poll(wait=0),
    "exit: too many arguments": lambda make, sock: make().__exit__(1, 2, 3, 4),
    "closed: poll": lambda make, sock: closed(make).poll(0),
    "closed: poll, a time of no kind": lambda make, sock: closed(make).poll("a"),
    "closed: register": lambda make, sock: closed(make).register(sock),
    "closed: register, no descriptor": lambda make, sock: closed(make).register("a"),
    "closed: number": lambda make, sock: closed(make).fileno(),
    "closed: enter": lambda make, sock: closed(make).__enter__(),
}


def closed(make: Any) -> Any:
    epoll = make()
    epoll.close()
    return epoll


@pytest.mark.parametrize("pair", ["ring"], indirect=True)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_errors_of_epoll_are_the_kernels(
    pair: Pair, wrong: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with socket.socket() as sock:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - compared below
            wrong(KERNEL["epoll"], sock.fileno())
        with pytest.raises(Exception) as caught:  # noqa: PT011
            wrong(select.epoll, pair.near)
    assert caught.type is expected.type
    # (Python's own words for a wrong number of arguments are not those of a module that Cython has made.)
    assert caught.value.args == expected.value.args or "argument" in str(expected.value)
    gc.collect()
    assert said == []


def test_an_epoll_whose_number_somebody_has_closed_goes_silently(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    epoll = select.epoll()
    epoll.register(pair.near, EPOLLIN)
    os.close(epoll.fileno())
    del epoll
    gc.collect()
    assert said == []
    epoll = select.epoll()
    os.close(epoll.fileno())
    epoll.close()
    assert epoll.closed
