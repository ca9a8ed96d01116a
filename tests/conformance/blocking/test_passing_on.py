"""Passing a connection on: another process, or C code in this one, reads and writes its descriptor raw.

Whatever lay unread at that moment, and in either direction, arrives whole and in order. The stages say what that is.
"""

import contextlib
import faulthandler
import fcntl
import functools
import io
import multiprocessing
import os
import shlex
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.pairs import (
    KINDS,
    ON_UNIX_STREAMS,
    SECONDS,
    KernelSocket,
    Pair,
    Task,
    listening,
    make_pair,
    payload,
    read_exactly,
    read_to_eof,
)

from conformance.blocking.processes import configured, forked

SMALL, LARGE = 1_000, 100_000 if ON_UNIX_STREAMS else 300_000  # (a unix stream takes 200 KB)


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
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

    sent = payload(SMALL, 3)

    def __init__(self, before: int, read: int, then: int, ends: str) -> None:
        self.before, self.read, self.then, self.ends = before, read, then, ends
        self.expected = payload(before, 1)[read:] + payload(then, 2)

    def prepare(self, near: socket.socket, far: socket.socket) -> None:
        near.sendall(self.sent)
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


# ---- to another process -------------------------------------------------------------------------------------


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


def inherited(near: socket.socket) -> contextlib.AbstractContextManager[None]:
    near.set_inheritable(True)
    return ends_well(subprocess.Popen(raw_cat(near.fileno()), close_fds=False))


@contextlib.contextmanager
def spawned(near: socket.socket) -> Iterator[None]:
    number = near.fileno()
    actions = [(os.POSIX_SPAWN_DUP2, number, 0), (os.POSIX_SPAWN_DUP2, number, 1)]
    pid = os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)
    yield
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def become_cat(near: socket.socket) -> None:
    os.dup2(near.fileno(), 0)
    os.dup2(near.fileno(), 1)
    os.execvp("cat", ["cat"])


def echo(given: "socket.socket | multiprocessing.connection.Connection") -> None:
    with given if isinstance(given, socket.socket) else given.recv() as sock:
        while data := sock.recv(65536):
            sock.sendall(data)


@contextlib.contextmanager
def pickled(method: str, near: socket.socket, by_pipe: bool = False) -> Iterator[None]:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=echo, args=(there if by_pipe else near,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of fork beside threads
        process.start()
    try:
        with here, there:
            if by_pipe:
                here.send(near)
            yield
        process.join(SECONDS)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        process.close()


WAYS: dict[str, Callable[[socket.socket], contextlib.AbstractContextManager[object]]] = {
    "stdin and stdout": lambda near: ends_well(subprocess.Popen(["cat"], stdin=near, stdout=near)),
    "by number": lambda near: ends_well(subprocess.Popen(["cat"], stdin=near.fileno(), stdout=near.fileno())),
    "pass_fds": lambda near: ends_well(subprocess.Popen(raw_cat(near.fileno()), pass_fds=[near.fileno()])),
    "inherited": inherited,
    "posix_spawn": spawned,
    "exec after fork": lambda near: forked(become_cat, near),
    **{f"pickled, {method}": functools.partial(pickled, method) for method in ("fork", "spawn", "forkserver")},
    "pickled through a pipe": functools.partial(pickled, "spawn", by_pipe=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_another_process_echoes(pair: Pair, stage: Stage, way: str) -> None:
    """What it reads comes back to far, behind what near had sent."""
    near, far = pair
    stage.prepare(near, far)
    with WAYS[way](near):
        near.close()
        assert stage.follow(far) == stage.sent + stage.expected


# ---- to C code, and to file objects that are there ------------------------------------------------------------


def file_that_was_there(near: socket.socket, expected: bytes) -> bytes:
    with open(os.devnull, "r+b", buffering=0) as file:
        os.dup2(near.fileno(), file.fileno())
        near.close()
        assert file.read() == expected
        assert file.write(b"by the file") == 11
    return b"by the file"


def socket_that_was_there(near: socket.socket, expected: bytes) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.dup2(near.fileno(), ours.fileno())
        near.close()
        assert read_to_eof(ours) == expected
        ours.sendall(b"by the other")
    return b"by the other"


def file_made(make: Callable[..., io.RawIOBase], near: socket.socket, expected: bytes) -> bytes:
    with make(near.fileno(), "rb", closefd=False) as file:
        assert file.read() == expected
    return b""


def raw_copy(copy: Callable[[socket.socket], int], near: socket.socket, expected: bytes) -> bytes:
    with KernelSocket(fileno=copy(near)) as raw:
        near.close()
        assert read_to_eof(raw) == expected
        raw.sendall(payload(LARGE, 4))
    return payload(LARGE, 4)


def sent_as_fd(near: socket.socket) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"!"], [near.fileno()])
        return socket.recv_fds(theirs, 1, 4)[1][0]


def over_another_number(near: socket.socket) -> int:
    return os.dup2(near.fileno(), os.open(os.devnull, os.O_RDONLY))


def by_system(near: socket.socket, expected: bytes) -> bytes:
    near.set_inheritable(True)
    assert os.system(shlex.join(raw_cat(near.fileno()))) == 0
    return expected


def by_splice(near: socket.socket, expected: bytes) -> bytes:
    exit_, entry = os.pipe()
    received = bytearray()
    while moved := os.splice(near.fileno(), entry, 5_000):
        while moved > 0:
            received += (data := os.read(exit_, moved))
            moved -= len(data)
    assert received == expected
    os.write(entry, b"through a pipe")
    assert os.splice(exit_, near.fileno(), 14) == 14
    os.close(entry)
    os.close(exit_)
    return b"through a pipe"


def signals_written(near: socket.socket, expected: bytes) -> bytes:
    near.setblocking(False)
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    before = signal.set_wakeup_fd(near.fileno(), warn_on_full_buffer=False)
    try:
        for _ in range(5):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        assert signal.set_wakeup_fd(before) == near.fileno()
        signal.signal(signal.SIGUSR1, handler)
    near.setblocking(True)
    assert read_to_eof(near) == expected
    return bytes([signal.SIGUSR1]) * 5


READERS: dict[str, Callable[[socket.socket, bytes], bytes]] = {
    "file that was there": file_that_was_there,
    "socket that was there": socket_that_was_there,
    **{make.__name__: functools.partial(file_made, make) for make in (os.fdopen, open, io.FileIO)},
    "send_fds": functools.partial(raw_copy, sent_as_fd),
    "F_DUPFD": functools.partial(raw_copy, lambda near: fcntl.fcntl(near, fcntl.F_DUPFD, 0)),
    "F_DUPFD_CLOEXEC": functools.partial(raw_copy, lambda near: fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, 0)),
    "os.system": by_system,
    **({"os.splice": by_splice} if hasattr(os, "splice") else {}),  # where the C library has it
    "signals": signals_written,
}
"""Each reads all that comes, and returns what it has written."""


@pytest.mark.parametrize("reader", READERS)
def test_the_number_is_read_and_written_raw(pair: Pair, stage: Stage, reader: str) -> None:
    near, far = pair
    stage.prepare(near, far)
    following = Task(stage.follow, far)
    written = READERS[reader](near, stage.expected)
    near.close()
    assert following.result() == stage.sent + written


@pytest.mark.parametrize("copy", [sent_as_fd, over_another_number])
def test_both_numbers_go_on(pair: Pair, copy: Callable[[socket.socket], int]) -> None:
    near, far = pair
    far.sendall(b"onetwo")
    assert near.recv(3) == b"one"
    with KernelSocket(fileno=copy(near)) as raw:
        assert read_exactly(raw, 3) == b"two"
        for turn in range(20):
            for reader, writer in ((near, raw), (raw, near)):
                far.sendall(b"%6d" % turn)
                assert read_exactly(reader, 6) == b"%6d" % turn
                writer.sendall(b"%6d" % turn)
                assert read_exactly(far, 6) == b"%6d" % turn


def dump_now(file: "int | socket.socket") -> None:
    faulthandler.dump_traceback(file, all_threads=False)


def dump_at_a_signal(file: "int | socket.socket") -> None:
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=False)
    signal.raise_signal(signal.SIGUSR2)
    faulthandler.unregister(signal.SIGUSR2)


@pytest.mark.parametrize("by_number", [False, True], ids=["socket", "number"])
@pytest.mark.parametrize("dump", [dump_now, dump_at_a_signal])
def test_tracebacks_written_to_it(pair: Pair, dump: Callable[..., None], by_number: bool) -> None:
    near, far = pair
    stage = STAGES["partly read"]
    stage.prepare(near, far)
    dump(near.fileno() if by_number else near)
    near.sendall(b"behind it")
    following = Task(stage.follow, far)
    assert read_to_eof(near) == stage.expected
    near.close()
    received = following.result()
    assert received.startswith(stage.sent)
    assert Path(__file__).name.encode() in received
    assert received.endswith(b"behind it")


def test_a_number_of_its_own_costs_nothing(pair: Pair, kind: str) -> None:
    """A copy under a number that nobody has stays on the ring, by `dup2` as by `dup`."""
    near, far = pair
    number = os.dup(0)
    os.close(number)
    os.dup2(near.fileno(), number)
    os.write(number, b"by the copy")
    os.close(number)
    assert read_exactly(far, 11) == b"by the copy"
    if KINDS[kind].moved:
        pair.check_path()


@pytest.mark.parametrize("how", ["dup2", "close and dup"])
def test_standard_streams_of_a_program(kind: str, how: str) -> None:
    """As a server does that inetd could start, or a shell that calls back."""
    script = """if True:
        import os, socket, sys
        port, kind, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        if kind != "kernel":
            import fastsock
            fastsock.patch(move_after=0)
        near = socket.create_connection(("127.0.0.1", port))
        for _ in range(50):
            near.sendall(b"ping")
            assert near.recv(4) == b"pong"
        near.sendall(b"done")
        for number in (0, 1):
            if how == "dup2":
                os.dup2(near.fileno(), number)
            else:
                os.close(number)
                assert os.dup(near.fileno()) == number
        near.close()
        for line in sys.stdin:
            print(line.strip()[::-1], flush=True)
    """
    with configured(kind), listening(KINDS[kind].far_fastsock) as listener:
        command = [sys.executable, "-c", script, str(listener.getsockname()[1]), kind, how]
        with ends_well(subprocess.Popen(command)), listener.accept()[0] as far:
            while read_exactly(far, 4) == b"ping":
                far.sendall(b"pong")
            for turn in range(15):
                far.sendall(b"%06d\n" % turn)
                assert read_exactly(far, 7) == (b"%06d" % turn)[::-1] + b"\n"
            far.shutdown(socket.SHUT_WR)
            assert read_to_eof(far) == b""
