"""Holders of one side of a connection in several PID namespaces, where the same number means different processes."""

import contextlib
import ctypes
import os
import signal
import warnings
from collections.abc import Callable, Iterator

import pytest
from conformance.blocking.processes import Gate, forked
from harness.pairs import make_pair, read_exactly, read_to_eof, until_asleep

pytestmark = pytest.mark.usefixtures("bounded")

CLONE_NEWPID = 0x20000000  # sched.h


def may_unshare() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(ctypes.CDLL(None).unshare(CLONE_NEWPID) != 0)
    return os.waitpid(pid, 0)[1] == 0


needs_permission = pytest.mark.skipif(not may_unshare(), reason="this user may make no PID namespace")


@contextlib.contextmanager
def forked_elsewhere(body: Callable[[], object]) -> Iterator[int]:
    """In a forked child: `body` in a child of its own, process 1 of a new namespace. Yields its number here."""

    def first() -> None:
        assert os.getpid() == 1
        body()

    assert ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0
    with forked(first) as pid:
        yield pid


@needs_permission
@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_a_holder_elsewhere_takes_none_that_lives_for_dead(kind: str) -> None:
    """It cannot see the others. So the last one ends the stream, and nobody before."""

    def stays() -> None:
        pair.far.close()
        parted.wait()
        pair.near.sendall(b"still here")
        pair.near.close()

    def goes() -> None:
        pair.far.close()
        with forked_elsewhere(pair.near.close):
            pass
        pair.near.close()

    with make_pair(kind) as pair, Gate() as parted, forked(stays):
        with forked(goes):
            pass
        pair.near.close()
        parted.open()
        assert read_to_eof(pair.far) == b"still here"


@needs_permission
@pytest.mark.parametrize("kind", ["kernel", "ring"])
def test_a_holder_that_is_killed_elsewhere_takes_nothing_with_it(kind: str) -> None:
    """Those that are left go on, and what they sent arrives."""

    def dies() -> None:
        pair.far.close()
        with forked_elsewhere(signal.pause) as pid:
            until_asleep(pid)
            os.kill(pid, signal.SIGKILL)
        pair.near.close()

    with make_pair(kind) as pair:
        with forked(dies):
            pass
        pair.far.sendall(b"question")
        assert read_exactly(pair.near, 8) == b"question"
        pair.near.sendall(b"last words")
        pair.near.close()
        assert read_to_eof(pair.far) == b"last words"
