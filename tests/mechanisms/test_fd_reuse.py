"""The descriptor by which blocked calls hear of a new meaning of a number: the process's own, one, and harmless."""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from conformance.blocking.processes import Gate, forked
from harness.hostile_peer import news
from harness.pairs import Pair, Task, eventually, make_pair, raises_errno

pytestmark = pytest.mark.usefixtures("bounded")

KIND = "one-sided"  # near is undecided, and stays so


@pytest.fixture
def strangers() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of something else."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        mine.settimeout(1)
        yield mine, theirs


def replace(pair: Pair, other: Pair) -> None:
    os.dup2(other.near.fileno(), pair.near.fileno())


def check_that_calls_are_told() -> None:
    """A blocked call whose number is replaced goes on with its connection."""
    with make_pair(KIND) as pair, make_pair(KIND) as other:
        receiving = Task(pair.near.recv, 10).until_asleep()
        replace(pair, other)
        pair.far.sendall(b"old")
        assert receiving.result() == b"old"


def check_untouched(strangers: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    mine, theirs = strangers
    theirs.sendall(b"more")
    assert mine.recv(100) == sent + b"more"
    mine.sendall(b"answer")
    assert theirs.recv(100) == b"answer"


def test_it_is_one_however_often_numbers_are_replaced() -> None:
    with make_pair(KIND) as third:
        bystander = Task(third.near.recv, 10).until_asleep()
        for _ in range(30):
            check_that_calls_are_told()
        bystander.until_asleep()
        eventually(lambda: len(news()), 1)
        third.far.sendall(b"still")
        assert bystander.result() == b"still"


@pytest.mark.parametrize("unread", [b"", b"unread"], ids=["quiet", "readable"])
def test_a_file_of_the_program_that_has_its_number_is_left_alone(
    strangers: tuple[socket.socket, socket.socket], unread: bytes
) -> None:
    mine, theirs = strangers
    with make_pair(KIND) as pair, make_pair(KIND) as other:
        pair.near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
        receiving = Task(pair.near.recv, 10).until_asleep()
        (number,) = news()
        inode = os.fstat(os.dup2(mine.fileno(), number)).st_ino
        theirs.sendall(unread)
        replace(pair, other)
        with pytest.raises(BlockingIOError):
            receiving.result()  # nobody could tell it
        check_that_calls_are_told()
        check_that_calls_are_told()
        assert os.fstat(number).st_ino == inode
        check_untouched(strangers, unread)
        os.close(number)


@pytest.mark.parametrize("taken", [False, True], ids=["closed", "taken-by-something-readable"])
def test_calls_sleep_when_the_program_closes_it(strangers: tuple[socket.socket, socket.socket], taken: bool) -> None:
    mine, theirs = strangers
    with make_pair(KIND) as pair:
        receiving = Task(pair.near.recv, 10).until_asleep()
        (number,) = news()
        if taken:
            theirs.sendall(b"unread")
            os.dup2(mine.fileno(), number)
        else:
            with raises_errno(errno.EBADF):  # to the program it is not open
                os.close(number)
        pair.far.sendall(b"1")
        assert receiving.result() == b"1"
        receiving = Task(pair.near.recv, 10).until_asleep()
        check_that_calls_are_told()
        eventually(lambda: len(news()), 1)
        pair.far.sendall(b"2")
        assert receiving.result() == b"2"
        if taken:
            check_untouched(strangers, b"unread")
            os.close(number)


def test_a_forked_child_has_its_own() -> None:
    def child() -> None:
        assert news() == []
        check_that_calls_are_told()
        over.wait()

    with make_pair(KIND) as pair, Gate() as over:
        receiving = Task(pair.near.recv, 10).until_asleep()
        with forked(child):
            receiving.until_asleep()
            check_that_calls_are_told()
            eventually(lambda: len(news()), 1)
            over.open()
        pair.far.sendall(b"1")
        assert receiving.result() == b"1"


@pytest.mark.parametrize("closes", [os.close, lambda fd: os.closerange(fd, fd + 1)], ids=["close", "closerange"])
def test_a_call_does_not_read_from_who_has_its_number_behind_our_back(
    strangers: tuple[socket.socket, socket.socket], closes: Callable[[int], object]
) -> None:
    """C code gives the number of an undecided connection away, and the program closes it: a call that is still inside
    has no connection any more, but it does not read what is the new one's."""
    mine, theirs = strangers
    with make_pair(KIND) as pair:
        pair.near.settimeout(0.5)
        receiving = Task(pair.near.recv, 10).until_asleep()
        number = pair.near.fileno()
        assert ctypes.CDLL(None).dup2(mine.fileno(), number) == number
        closes(number)
        theirs.sendall(b"for mine")
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on when it looks
            receiving.result()
        check_untouched(strangers, b"for mine")
        pair.near.detach()
