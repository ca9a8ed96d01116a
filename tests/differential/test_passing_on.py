"""Passing a connection on: another process, or C code in this one, reads and writes its descriptor raw.

Whatever lay unread at that moment, and in either direction, arrives whole and in order. The stages say what that is.
"""

import contextlib
import io
import multiprocessing
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest
from pairs import KINDS, SECONDS, KernelSocket, Pair, Task, make_pair, payload, read_exactly, read_to_eof

from differential.processes import forked

SMALL, LARGE = 1_000, 300_000


@pytest.fixture
def pair(patched: None, kind: str) -> Iterator[Pair]:
    with make_pair(kind) as pair:
        if KINDS[kind].moves and not KINDS[kind].moved:
            for _ in range(4):  # in the middle of the move
                pair.near.sendall(b"n")
                pair.far.sendall(b"f")
                assert (pair.near.recv(1), pair.far.recv(1)) == (b"f", b"n")
        yield pair


class Stage:
    """What happens before near is passed on and what is still to come: `expected` is what near's next reader
    gets, up to the end of the stream."""

    def __init__(self, before: int, read: int, then: int, ends: str) -> None:
        self.before, self.read, self.then, self.ends = before, read, then, ends
        self.expected = payload(before, 1)[read:] + payload(then, 2)

    def prepare(self, near: socket.socket, far: socket.socket) -> None:
        near.sendall(payload(SMALL, 3))
        if self.before:
            far.sendall(payload(self.before, 1))
        assert read_exactly(near, self.read) == payload(self.before, 1)[: self.read]
        if self.ends == "shut before":
            far.shutdown(socket.SHUT_WR)

    def follow(self, far: socket.socket) -> bytes:
        """Sends the rest, and returns what far receives."""
        received = Task(read_to_eof, far)
        if self.ends != "shut before":
            if self.then:
                far.sendall(payload(self.then, 2))
            far.shutdown(socket.SHUT_WR)
        received.join(SECONDS)  # an interpreter may have to start, on a busy machine
        return received.result()


STAGES = {
    "nothing unread": Stage(0, 0, LARGE, "shut after"),
    "little unread": Stage(40, 0, SMALL, "shut after"),
    "partly read": Stage(LARGE, 12_345, LARGE, "shut after"),
    "much unread": Stage(2 * LARGE, 0, LARGE, "shut after"),
    "half-closed": Stage(LARGE, 10, 0, "shut before"),
}


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> Stage:
    return STAGES[request.param]


PassOn = Callable[[socket.socket], contextlib.AbstractContextManager[object]]


def echoed(pair: Pair, stage: Stage, pass_on: PassOn) -> None:
    """`pass_on` lets a `cat` have the near end: what it reads comes back to far, behind what near had sent."""
    near, far = pair
    stage.prepare(near, far)
    with pass_on(near):
        near.close()
        assert stage.follow(far) == payload(SMALL, 3) + stage.expected


@contextlib.contextmanager
def ends_well(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def raw_cat(number: int) -> list[str]:
    """The command of a program that knows nothing of fastsock and has the connection under this number."""
    copy = f"import os\nwhile data := os.read({number}, 65536):\n while data: data = data[os.write({number}, data):]"
    return [sys.executable, "-I", "-S", "-c", copy]


def test_stdin_and_stdout_of_a_subprocess(pair: Pair, stage: Stage) -> None:
    echoed(pair, stage, lambda near: ends_well(subprocess.Popen(["cat"], stdin=near, stdout=near)))


def test_stdin_and_stdout_by_number(pair: Pair, stage: Stage) -> None:
    echoed(pair, stage, lambda near: ends_well(subprocess.Popen(["cat"], stdin=near.fileno(), stdout=near.fileno())))


def test_pass_fds(pair: Pair, stage: Stage) -> None:
    def start(near: socket.socket) -> contextlib.AbstractContextManager[object]:
        number = near.fileno()
        return ends_well(subprocess.Popen(raw_cat(number), pass_fds=[number]))

    echoed(pair, stage, start)


def test_inherited_by_a_subprocess(pair: Pair, stage: Stage) -> None:
    def start(near: socket.socket) -> contextlib.AbstractContextManager[object]:
        number = near.fileno()
        near.set_inheritable(True)
        return ends_well(subprocess.Popen(raw_cat(number), close_fds=False))

    echoed(pair, stage, start)


def test_posix_spawn(pair: Pair, stage: Stage) -> None:
    @contextlib.contextmanager
    def start(near: socket.socket) -> Iterator[None]:
        number = near.fileno()
        actions = [(os.POSIX_SPAWN_DUP2, number, 0), (os.POSIX_SPAWN_DUP2, number, 1)]
        pid = os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)
        yield
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    echoed(pair, stage, start)


def test_exec_after_fork(pair: Pair, stage: Stage) -> None:
    def run(near: socket.socket) -> None:
        os.dup2(near.fileno(), 0)
        os.dup2(near.fileno(), 1)
        os.execvp("cat", ["cat"])

    echoed(pair, stage, lambda near: forked(run, near))


def test_send_fds(pair: Pair, stage: Stage) -> None:
    near, far = pair
    stage.prepare(near, far)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"!"], [near.fileno()])
        _, numbers, _, _ = socket.recv_fds(theirs, 1, 4)
    near.close()
    with KernelSocket(fileno=numbers[0]) as received:
        following = Task(stage.follow, far)
        assert read_to_eof(received) == stage.expected
        received.sendall(payload(LARGE, 4))
        received.shutdown(socket.SHUT_WR)
        assert following.result() == payload(SMALL, 3) + payload(LARGE, 4)


def test_send_fds_and_both_go_on(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"onetwo")
    assert near.recv(3) == b"one"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"!"], [near.fileno()])
        _, numbers, _, _ = socket.recv_fds(theirs, 1, 4)
    with KernelSocket(fileno=numbers[0]) as received:
        for turn in range(20):
            for reader, writer in ((received, near), (near, received)):
                if turn or reader is near:
                    far.sendall(b"%6d" % turn)
                    assert read_exactly(reader, 6) == b"%6d" % turn
                else:
                    assert read_exactly(reader, 3) == b"two"
                writer.sendall(b"%6d" % turn)
                assert read_exactly(far, 6) == b"%6d" % turn


def test_a_received_descriptor_is_an_ordinary_socket(pair: Pair, kind: str) -> None:
    near, far = pair
    far.sendall(b"unread")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"!"], [near.fileno()])
        _, numbers, _, _ = socket.recv_fds(theirs, 1, 4)
    near.close()
    with type(near)(fileno=numbers[0]) as received:
        assert received.getpeername() == far.getsockname()
        assert received.getsockname() == far.getpeername()
        assert read_exactly(received, 6) == b"unread"
        for turn in range(100):
            far.sendall(b"%6d" % turn)
            assert read_exactly(received, 6) == b"%6d" % turn
            received.sendall(b"%6d" % turn)
            assert read_exactly(far, 6) == b"%6d" % turn


@pytest.mark.parametrize("make", [os.fdopen, open, io.FileIO], ids=["fdopen", "open", "FileIO"])
def test_a_file_object_on_the_number(pair: Pair, stage: Stage, make: Callable[..., io.RawIOBase]) -> None:
    near, far = pair
    stage.prepare(near, far)
    following = Task(stage.follow, far)
    with make(near.fileno(), "rb", closefd=False) as file:
        assert file.read() == stage.expected
    near.close()
    assert following.result() == payload(SMALL, 3)


def child_echo(sock: socket.socket) -> None:
    with sock:
        while data := sock.recv(65536):
            sock.sendall(data)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pickled_by_multiprocessing(pair: Pair, stage: Stage, method: str) -> None:
    @contextlib.contextmanager
    def start(near: socket.socket) -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of fork beside threads
            process = multiprocessing.get_context(method).Process(target=child_echo, args=(near,))
            process.start()
        try:
            yield
            process.join(SECONDS)
            assert process.exitcode == 0
        finally:
            process.kill()
            process.join()
            process.close()

    echoed(pair, stage, start)


def child_receives(connection: "multiprocessing.connection.Connection") -> None:
    child_echo(connection.recv())


def test_pickled_through_a_pipe(pair: Pair, stage: Stage) -> None:
    @contextlib.contextmanager
    def start(near: socket.socket) -> Iterator[None]:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=child_receives, args=(there,))
        process.start()
        try:
            with here, there:
                here.send(near)
                yield
            process.join(SECONDS)
            assert process.exitcode == 0
        finally:
            process.kill()
            process.join()
            process.close()

    echoed(pair, stage, start)


def test_exec_in_place(kind: str) -> None:
    """A program that becomes another one, with its connection as standard input and output."""
    script = """if True:
        import os, socket, sys
        port, kind = int(sys.argv[1]), sys.argv[2]
        if kind != "kernel":
            import fastsock
            fastsock.patch(move_after=0)
        near = socket.create_connection(("127.0.0.1", port))
        for _ in range(50):
            near.sendall(b"ping")
            assert near.recv(4) == b"pong"
        near.sendall(b"done")
        while near.recv(1, socket.MSG_PEEK) != b"!":
            pass
        os.dup2(near.fileno(), 0)
        os.dup2(near.fileno(), 1)
        os.execvp("cat", ["cat"])
    """
    with contextlib.ExitStack() as stack:
        listener_class: type[socket.socket] = KernelSocket
        if KINDS[kind].far_facade:
            import fastsock

            stack.enter_context(fastsock.configure(**KINDS[kind].settings))
            listener_class = fastsock.socket
        listener = stack.enter_context(listener_class())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        command = [sys.executable, "-c", script, str(listener.getsockname()[1]), kind]
        stack.enter_context(ends_well(subprocess.Popen(command)))
        far, _ = listener.accept()
        stack.enter_context(far)
        while far.recv(4) == b"ping":
            far.sendall(b"pong")
        far.sendall(b"!" + payload(LARGE))
        following = Task(read_to_eof, far)
        far.sendall(b"?")
        far.shutdown(socket.SHUT_WR)
        assert following.result() == b"!" + payload(LARGE) + b"?"
