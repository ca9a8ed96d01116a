"""Signals during a wait: the handler runs, and the call resumes or is interrupted as PEP 475 says."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from harness.pairs import Pair, Task, payload, read_exactly, when_main_sleeps


class Interrupt(Exception):
    """What a handler raises to end a wait."""


@contextlib.contextmanager
def handler(function: Callable[[], object], number: int = signal.SIGUSR1) -> Iterator[None]:
    """``function`` handles the signal."""
    previous = signal.signal(number, lambda *_: function())
    try:
        yield
    finally:
        signal.signal(number, previous)


def signal_main() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


def raise_interrupt() -> None:
    raise Interrupt


def test_the_handler_may_use_the_connection(pair: Pair) -> None:
    near, far = pair
    echo = Task(lambda: far.sendall(read_exactly(far, 13)))
    with handler(lambda: near.sendall(b"sent from it;")):
        helper = when_main_sleeps(signal_main)
        assert read_exactly(near, 13) == b"sent from it;"
        helper.result()
    echo.result()


def test_control_c_interrupts_a_receive(pair: Pair) -> None:
    near, far = pair

    def interrupt() -> None:  # CPython's own handler, set here as a background shell job ignores SIGINT
        raise KeyboardInterrupt

    with handler(interrupt, signal.SIGINT):
        helper = when_main_sleeps(os.kill, os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            near.recv(100)
        helper.result()
    far.sendall(b"unharmed")
    assert near.recv(100) == b"unharmed"


def test_a_signal_does_not_lengthen_a_timeout(pair: Pair) -> None:
    near, _ = pair
    near.settimeout(0.3)
    handled = threading.Event()
    with handler(handled.set):
        helper = when_main_sleeps(signal_main)
        start = time.monotonic()
        with pytest.raises(TimeoutError, match=r"^timed out$"):
            near.recv(100)
        assert time.monotonic() - start >= 0.295
        helper.result()
    assert handled.is_set()


def test_many_signals_lose_no_byte(pair: Pair) -> None:
    near, far = pair
    data = payload(4 << 20)
    count = 0
    done = threading.Event()

    def handle() -> None:
        nonlocal count
        count += 1

    def storm() -> None:
        while not done.wait(0.0005):
            signal_main()

    with handler(handle):
        stormy = Task(storm)
        try:
            for receiver, sender in ((near, far), (far, near)):
                writer = Task(sender.sendall, data)
                assert read_exactly(receiver, len(data), at_most=5000) == data
                writer.result()
                reader = Task(read_exactly, receiver, len(data))
                sender.sendall(data)
                assert reader.result() == data
        finally:
            done.set()
            stormy.result()
    assert count > 0
