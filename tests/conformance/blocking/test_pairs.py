"""A socketpair that a fork shares: each process has both ends, and what they do with them is the kernel's business.

The kernel's pair says what is right. On the ring both ends have moved before the fork, or stay with the kernel."""

import array
import contextlib
import errno
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.pairs import SECONDS, path_of, payload, poll_mask, raises_errno, read_exactly, read_to_eof, until

from conformance.blocking.processes import Gate, forked

RING = {"ring": {}, "ring-nopoll": {"poll_us": 0}, "ring-at-once": {"move_after": 0}}
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["kernel", *RING])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def ends(kind: str) -> Iterator[Ends]:
    """Before any fork."""
    with contextlib.ExitStack() as stack:
        if kind in RING:
            import fastsock  # only where it is needed: see pairs

            fastsock.patch(**RING[kind])
            stack.callback(fastsock.unpatch)
        near, far = (stack.enter_context(end) for end in socket.socketpair())
        yield near, far


def echo(sock: socket.socket) -> None:
    while chunk := sock.recv(100_000):
        sock.sendall(chunk)


def exchange(near: socket.socket) -> None:
    for size in (1, 48, 49, 4000, 70_000):
        near.sendall(payload(size))
        assert read_exactly(near, size) == payload(size)


def check_path(sock: socket.socket, kind: str, moves: bool = True) -> None:
    assert path_of(sock) == ("ring" if moves and kind in RING else "tcp")


@pytest.mark.parametrize("closes", ["both", "parent", "child", "neither"])
def test_each_process_uses_one_end(ends: Ends, kind: str, closes: str) -> None:
    near, far = ends
    with Gate() as over:

        def serve() -> None:
            if closes in ("both", "child"):
                near.close()
            for size in (1, 48, 49, 4000, 70_000):
                far.sendall(read_exactly(far, size))
            check_path(far, kind)
            over.wait()

        with forked(serve):
            if closes in ("both", "parent"):
                far.close()
            exchange(near)
            check_path(near, kind)
            over.open()
        if closes in ("both", "parent"):
            assert near.recv(1) == b""
        else:
            assert poll_mask(near) == select.POLLOUT, "this process has the other end still"
            far.sendall(b"from here")
            assert near.recv(100) == b"from here"


def test_what_lies_unread_at_the_fork(ends: Ends, kind: str) -> None:
    near, far = ends
    near.sendall(b"before ")
    far.sendall(b"there")

    def serve() -> None:
        assert read_exactly(far, 7) == b"before "
        far.sendall(b" and back")
        assert read_to_eof(far) == b"behind"

    with forked(lambda: (near.close(), serve())):
        far.close()
        near.sendall(b"behind")
        assert read_exactly(near, 14) == b"there and back"
        near.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""


def test_the_end_comes_with_the_last_holder(ends: Ends, kind: str) -> None:
    near, far = ends

    def speak() -> None:
        exchange(far)
        far.sendall(b"last words")

    with forked(speak):
        for size in (1, 48, 49, 4000, 70_000):
            near.sendall(read_exactly(near, size))
        assert read_exactly(near, 10) == b"last words"
    check_path(near, kind)
    poll = select.poll()
    poll.register(near, select.POLLIN)
    assert poll.poll(50) == []
    far.close()
    assert poll.poll(0) == [(near.fileno(), select.POLLIN | select.POLLHUP)]
    assert near.recv(1) == b""
    with raises_errno(errno.EPIPE):
        near.send(b"x")


def test_a_killed_child_leaves_its_bytes_to_the_other_holder(ends: Ends, kind: str) -> None:
    near, far = ends
    with Gate() as ready, Gate() as never:

        def serve() -> None:
            far.sendall(read_exactly(far, 4))
            ready.open()
            never.wait()

        with forked(serve) as child:
            near.sendall(b"ring")
            ready.wait()
            near.sendall(b"unread")
            os.kill(child, signal.SIGKILL)
    assert far.recv(100) == b"unread"
    assert near.recv(100) == b"ring"
    far.close()
    assert near.recv(1) == b""


def test_a_killed_child_was_the_last_holder(ends: Ends, kind: str) -> None:
    near, far = ends
    with Gate() as ready, Gate() as never:

        def serve() -> None:
            near.close()
            far.sendall(read_exactly(far, 4))
            ready.open()
            never.wait()

        with forked(serve) as child:
            far.close()
            near.sendall(b"ring")
            ready.wait()
            near.sendall(b"unread")
            os.kill(child, signal.SIGKILL)
    assert near.recv(100) == b"ring"
    with raises_errno(errno.ECONNRESET):
        near.recv(100)
    assert near.recv(100) == b""


def test_the_other_end_is_closed_with_bytes_unread(ends: Ends, kind: str) -> None:
    near, far = ends

    def serve() -> None:
        near.close()
        far.sendall(read_exactly(far, 4))
        far.sendall(read_exactly(far, 4))
        poll = select.poll()
        poll.register(far, select.POLLIN)
        assert poll.poll(SECONDS * 1000)

    with forked(serve):
        far.close()
        for _ in range(2):
            near.sendall(b"move")
            assert read_exactly(near, 4) == b"move"
        near.sendall(b"unread")
    everything = select.POLLIN | select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLRDHUP
    poll = select.poll()
    poll.register(near, everything)
    assert poll.poll(0) == [(near.fileno(), everything)]
    with raises_errno(errno.ECONNRESET):
        near.recv(100)
    assert poll.poll(0) == [(near.fileno(), everything & ~select.POLLERR)]
    assert near.recv(100) == b""


def test_both_ends_are_used_by_one_process(ends: Ends, kind: str) -> None:
    near, far = ends
    with Gate() as over, forked(over.wait):
        for one, other in ((near, far), (far, near)):
            one.sendall(b"to itself")
            assert other.recv(100) == b"to itself"
        over.open()
    near.sendall(b"and behind")
    assert far.recv(100) == b"and behind"


def test_an_end_that_does_not_wait_is_an_event_loops(ends: Ends, kind: str) -> None:
    """It is the kernel's for good, as it is in a process without fastsock."""
    near, far = ends
    far.setblocking(False)

    def serve() -> None:
        near.sendall(b"child")
        check_path(near, kind, moves=False)

    with forked(serve):
        assert select.select([far], [], [], SECONDS)[0]
        assert far.recv(100) == b"child"
    near.sendall(b"wake")
    assert far.recv(100) == b"wake"
    check_path(far, kind, moves=False)
    with raises_errno(errno.EAGAIN):
        far.recv(1)


@pytest.mark.parametrize("how", ["made", "epoll"])
def test_an_end_that_a_loop_waits_on(ends: Ends, kind: str, how: str) -> None:
    """The registration is of the time before the fork."""
    near, far = ends
    with select.epoll() as epoll:
        epoll.register(near, select.EPOLLIN)
        if how == "epoll":
            assert epoll.poll(0) == []
        with Gate() as turn:

            def serve() -> None:
                for _ in range(20):
                    turn.wait()
                    far.sendall(b"event")
                    far.recv(100)

            with forked(serve):
                for _ in range(20):
                    turn.open()
                    assert epoll.poll(SECONDS) == [(near.fileno(), select.EPOLLIN)]
                    assert near.recv(100) == b"event"
                    assert epoll.poll(0) == []
                    near.sendall(b"x")
    check_path(near, kind)


def test_a_thread_waits_in_the_kernel_while_another_forks(ends: Ends, kind: str) -> None:
    near, far = ends
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(near.recv(100)))
    thread.start()
    state = Path(f"/proc/self/task/{thread.native_id}/stat")
    until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S", "it waits")
    with forked(far.sendall, b"wake up"):
        thread.join(SECONDS)
    assert got == [b"wake up"]
    far.sendall(b"more")
    assert near.recv(100) == b"more"


def test_a_child_of_the_child(ends: Ends, kind: str) -> None:
    near, far = ends

    def hand_on() -> None:
        near.close()
        far.sendall(read_exactly(far, 4))
        with forked(echo, far):
            far.close()

    with forked(hand_on):
        far.close()
        near.sendall(b"move")
        assert read_exactly(near, 4) == b"move"
        exchange(near)
        near.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""


def test_several_children_of_one_pair(ends: Ends, kind: str) -> None:
    """Which one answers is anybody's guess, but each message is answered once."""
    near, far = ends

    def serve() -> None:
        near.close()
        while got := far.recv(1):
            far.sendall(got)

    with forked(serve), forked(serve), forked(serve):
        far.close()
        for number in range(200):
            near.sendall(bytes([number]))
            assert near.recv(100) == bytes([number])
        near.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""


def test_the_parent_goes_first(ends: Ends, kind: str) -> None:
    near, far = ends
    with Gate() as gone:

        def serve() -> None:
            near.close()
            far.sendall(read_exactly(far, 4))
            gone.wait()
            assert far.recv(100) == b"rest"
            assert far.recv(1) == b""
            with raises_errno(errno.EPIPE):
                far.send(b"x")

        with forked(serve):
            far.close()
            near.sendall(b"move")
            assert read_exactly(near, 4) == b"move"
            near.sendall(b"rest")
            near.close()
            gone.open()


def test_one_end_is_another_number_too(ends: Ends, kind: str) -> None:
    near, far = ends
    with near.dup() as copy:

        def serve() -> None:
            near.close()
            copy.close()
            echo(far)

        with forked(serve):
            far.close()
            near.close()
            exchange(copy)
            check_path(copy, kind)
            copy.shutdown(socket.SHUT_WR)
            assert copy.recv(1) == b""


def test_an_end_is_passed_on(ends: Ends, kind: str) -> None:
    """To a process that reads what lay unread, and all that follows."""
    near, far = ends
    with contextlib.ExitStack() as stack:
        here, there = (stack.enter_context(end) for end in socket.socketpair())

        def serve() -> None:
            near.close()
            here.close()
            far.sendall(read_exactly(far, 4))
            until(lambda: poll_mask(far) & select.POLLIN, "it lies unread")
            there.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [far.fileno()]))])
            far.close()
            there.recv(1)

        with forked(serve):
            far.close()
            there.close()
            near.sendall(b"move")
            assert read_exactly(near, 4) == b"move"
            near.sendall(b"unread")
            _, (number,), *_ = socket.recv_fds(here, 10, 1)
            with socket.socket(fileno=number) as passed:
                assert passed.recv(100) == b"unread"
                passed.sendall(b"answer")
                assert near.recv(100) == b"answer"
                near.sendall(b"more")
                assert passed.recv(100) == b"more"
            here.sendall(b"over")


@pytest.mark.parametrize("forks", ["vfork", "fork"])
def test_another_program_gets_an_end(ends: Ends, kind: str, forks: str) -> None:
    near, far = ends
    more: dict[str, Any] = {"preexec_fn": lambda: None} if forks == "fork" else {}
    with subprocess.Popen(["cat"], stdin=far, stdout=far, **more) as process:
        far.close()
        exchange(near)
        near.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
        assert process.wait(SECONDS) == 0


def test_shutting_down(ends: Ends, kind: str) -> None:
    near, far = ends

    def serve() -> None:
        far.sendall(read_exactly(far, 4))
        assert read_to_eof(far) == b"rest"
        far.sendall(b"answer")
        far.shutdown(socket.SHUT_RDWR)

    with forked(serve):
        near.sendall(b"move")
        assert read_exactly(near, 4) == b"move"
        near.sendall(b"rest")
        near.shutdown(socket.SHUT_WR)
        assert read_to_eof(near) == b"answer"
    with raises_errno(errno.EPIPE):
        far.send(b"it is shut for this holder too")


def test_settings_are_the_sockets_own(ends: Ends, kind: str) -> None:
    """A flag or an option that one holder sets holds for the others."""
    near, far = ends
    with Gate() as turn, Gate() as back:

        def change() -> None:
            turn.wait()
            near.setblocking(False)
            back.open()
            turn.wait()
            near.setblocking(True)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, array.array("q", [0, 50_000]).tobytes())
            back.open()
            turn.wait()

        with forked(change):
            for one, other in ((near, far), (far, near)) * 10:
                one.sendall(b"move")
                assert other.recv(100) == b"move"
            turn.open()
            back.wait()
            with raises_errno(errno.EAGAIN):
                near.recv(1)
            turn.open()
            back.wait()
            with raises_errno(errno.EAGAIN):
                near.recv(1)
            turn.open()
    check_path(near, kind)


def worker(connection: Any, other: Any, closes: bool) -> None:
    if closes:
        other.close()
    while (got := connection.recv()) is not None:
        connection.send(got)


@pytest.mark.parametrize("closes", [False, True])
def test_multiprocessing_pipe(ends: Ends, kind: str, closes: bool) -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=worker, args=(there, here, closes), daemon=True)
    process.start()
    if closes:
        there.close()
    for size in (1, 100, 5000, 20_000, 1_000_000):
        here.send("x" * size)
        assert here.poll(SECONDS)
        assert here.recv() == "x" * size
    with socket.socket(fileno=os.dup(here.fileno())) as sock:
        check_path(sock, kind)
    here.send(None)
    process.join(SECONDS)
    assert process.exitcode == 0
    if closes:
        with pytest.raises(EOFError):
            here.recv()
    here.close()
    there.close()


def test_a_pair_of_which_one_end_is_gone(ends: Ends, kind: str) -> None:
    near, far = ends
    far.sendall(b"left")
    far.close()

    def look() -> None:
        assert near.recv(1) == b"l"

    with forked(look):
        pass
    assert near.recv(100) == b"eft"
    assert near.recv(100) == b""


def test_names_and_credentials_are_the_kernels(ends: Ends, kind: str) -> None:
    near, far = ends
    with forked(echo, far) as child:
        exchange(near)
        assert near.getpeername() == near.getsockname() == ""
        who = array.array("i", near.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        assert who[0] == os.getpid()
        os.kill(child, signal.SIGKILL)


def test_fastsock_ss_names_the_process_at_the_other_end(ends: Ends, kind: str) -> None:
    if kind == "kernel":
        return  # there is nothing to ask for
    from fastsock.tools import introspection

    near, far = ends
    with forked(lambda: (near.close(), echo(far))) as child:
        far.close()
        exchange(near)
        shown = {each.pid: each.connections for each in introspection.query({os.getpid(), child})}
        assert [each.peer_pid for each in shown[os.getpid()]] == [child]
        assert [each.peer_pid for each in shown[child]] == [os.getpid()]
        near.shutdown(socket.SHUT_WR)
