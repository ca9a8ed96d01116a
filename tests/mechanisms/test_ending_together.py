"""Processes that share a connection let go of it at the same moment: one of them is the last, and says
goodbye for all."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterator

import pytest
from conformance.blocking.processes import Gate, forked
from harness.pairs import Pair, inside, make_pair, poll_mask, taken_back, until
from harness.tracing import await_access, watched
from native.ring import library

pytestmark = pytest.mark.usefixtures("bounded")
BOTH_KINDS = pytest.mark.parametrize("kind", ["kernel", "ring"])


def ended(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@contextlib.contextmanager
def closed_together(pair: Pair) -> Iterator[None]:
    """Two processes have closed `near` by then, of which the first one saw the second one hold it when it looked."""
    near, far = pair
    with Gate() as first, Gate() as second:

        def close(gate: Gate) -> None:
            far.close()
            gate.wait()
            near.close()

        with forked(close, first) as one, forked(close, second) as other:
            word = 0 if pair.kind == "kernel" else library().holders_of(inside(near)["side"])
            near.close()
            if not word:
                first.open()
                second.open()
            else:
                with watched(one) as tracee:
                    tracee.watch(word)
                    first.open()
                    await_access(tracee)
                    second.open()
                    until(lambda: ended(other), "the second one's end")
                    tracee.let_go()
        yield


@BOTH_KINDS
def test_two_that_close_at_once_end_the_stream(kind: str) -> None:
    with make_pair(kind) as pair:
        pair.near.sendall(b"last words")
        with closed_together(pair):
            assert pair.far.recv(100) == b"last words"
            assert pair.far.recv(100) == b""
            assert kind == "kernel" or inside(pair.far)["fin"], "it takes the end for a death"


@BOTH_KINDS
def test_two_that_close_at_once_reset_what_lies_unread(kind: str) -> None:
    with make_pair(kind) as pair:
        pair.far.sendall(b"unread")
        with closed_together(pair):
            until(lambda: poll_mask(pair.far) & select.POLLHUP, "the reset")
            with pytest.raises(ConnectionResetError):
                pair.far.recv(100)


def test_a_child_that_went_over_a_bridge_is_counted_out_once() -> None:
    """Its parent would take itself for the last, and say goodbye while the bridge carries the connection on."""
    with make_pair("ring") as (near, far), Gate() as gate:
        far.sendall(b"unread")
        far.shutdown(socket.SHUT_WR)

        def leave() -> None:
            far.close()
            raw = taken_back(near)
            assert raw.recv(100) == b"unread"  # left in the bridge it would be lost, and end the connection
            if os.fork() == 0:  # so that the bridge outlives the child
                gate.wait()
                os._exit(0)

        with forked(leave):
            pass
        assert inside(near)["holders"] == 2, "this process and the bridge"
        gate.open()
        until(lambda: inside(near)["holders"] == 1, "the bridge's end")


def memory_comes_back() -> None:
    with make_pair("ring") as (near, far), Gate() as started:
        side = inside(near)["side"]

        def hold() -> None:
            started.open()
            signal.pause()

        with forked(hold) as child:
            started.wait()
            near.close()
            os.kill(child, signal.SIGKILL)
        with contextlib.ExitStack() as sockets:
            several = [sockets.enter_context(make_pair("one-sided")).near for _ in range(300)]
            assert side in [inside(sock)["side"] for sock in several]
        assert far.recv(1) == b""


def test_memory_that_a_killed_child_shared_comes_back() -> None:
    with forked(memory_comes_back):  # a process that has no other memory left to give first
        pass
