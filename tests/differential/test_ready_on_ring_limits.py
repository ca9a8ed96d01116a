"""What stands for the functions of `select` with the setting ``ready_on_ring``, at the limits: numbers
that are closed. The kernel's own functions pass the same tests."""

import contextlib
import os
import select
from collections.abc import Iterator
from select import POLLIN, POLLNVAL

import pytest
from pairs import KINDS, SECONDS, Pair, Task, make_pair, move, number_of

pytestmark = pytest.mark.usefixtures("own_settings")


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
