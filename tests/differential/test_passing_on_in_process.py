"""Passing a connection on within the process: C code, or a file object that was there before, has the number now.

The calls by which a number gets there: `os.dup2` and `os.dup` onto a number that somebody has already, `os.system`,
`fcntl`, `os.splice`, and functions that write to a number from a signal handler. What lay unread arrives whole and in
order.
"""

import contextlib
import faulthandler
import fcntl
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pairs import KINDS, KernelSocket, Pair, Task, make_pair, payload, read_exactly, read_to_eof

from differential.processes import configured, socket_class

SENT, UNREAD, LATER = payload(1_000, 1), payload(300_000, 2), payload(100_000, 3)


@pytest.fixture
def pair(patched: None, kind: str) -> Iterator[Pair]:
    """SENT is on its way to far and UNREAD to near."""
    with make_pair(kind) as pair:
        if KINDS[kind].moves:
            for _ in range(4):  # those that move between two calls are in the middle of the move
                pair.near.sendall(b"n")
                pair.far.sendall(b"f")
                assert (pair.near.recv(1), pair.far.recv(1)) == (b"f", b"n")
        pair.near.sendall(SENT)
        pair.far.sendall(UNREAD)
        yield pair


def end_stream(far: socket.socket) -> bytes:
    """Sends LATER and the end, and returns all that comes."""
    received = Task(read_to_eof, far)
    far.sendall(LATER)
    far.shutdown(socket.SHUT_WR)
    return received.result()


def test_over_the_number_of_a_file_object(pair: Pair) -> None:
    near, far = pair
    with open(os.devnull, "r+b", buffering=0) as file:
        os.dup2(near.fileno(), file.fileno())
        near.close()
        following = Task(end_stream, far)
        assert file.read() == UNREAD + LATER
        assert file.write(b"by the file") == 11
    assert following.result() == SENT + b"by the file"


def test_over_the_number_of_another_socket(pair: Pair) -> None:
    near, far = pair
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.dup2(near.fileno(), ours.fileno())
        near.close()
        following = Task(end_stream, far)
        assert read_to_eof(ours) == UNREAD + LATER
        ours.sendall(b"by the other")
        ours.close()
    assert following.result() == SENT + b"by the other"


def test_both_numbers_go_on(pair: Pair) -> None:
    near, far = pair
    with open(os.devnull, "r+b", buffering=0) as file:
        os.dup2(near.fileno(), file.fileno())
        assert read_exactly(far, len(SENT)) == SENT
        assert read_exactly(near, 1_000) == UNREAD[:1_000]
        rest = bytearray()
        while len(rest) < len(UNREAD) - 1_000:
            rest += file.read(1 << 16)
        assert rest == UNREAD[1_000:]
        for turn in range(50):
            near.sendall(b"%6d" % turn)
            file.write(b"%6d" % -turn)
            assert read_exactly(far, 12) == b"%6d%6d" % (turn, -turn)
            far.sendall(b"%6d%6d" % (turn, -turn))
            assert read_exactly(near, 6) == b"%6d" % turn
            assert file.read(6) == b"%6d" % -turn


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
    with contextlib.ExitStack() as stack:
        stack.enter_context(configured(kind))
        listener = stack.enter_context(socket_class(KINDS[kind].far_facade)())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        command = [sys.executable, "-c", script, str(listener.getsockname()[1]), kind, how]
        program = stack.enter_context(subprocess.Popen(command))
        stack.callback(program.kill)
        far, _ = listener.accept()
        stack.enter_context(far)
        while read_exactly(far, 4) == b"ping":
            far.sendall(b"pong")
        for turn in range(50):
            far.sendall(b"%06d\n" % turn)
            assert read_exactly(far, 7) == (b"%06d" % turn)[::-1] + b"\n"
        far.shutdown(socket.SHUT_WR)
        assert read_to_eof(far) == b""
        assert program.wait() == 0


def test_os_system(pair: Pair) -> None:
    near, far = pair
    near.set_inheritable(True)
    following = Task(end_stream, far)
    copy = "import os\nwhile data := os.read(NUMBER, 65536):\n while data: data = data[os.write(NUMBER, data):]"
    command = [sys.executable, "-I", "-S", "-c", copy.replace("NUMBER", str(near.fileno()))]
    assert os.system(shlex.join(command)) == 0
    near.close()
    assert following.result() == SENT + UNREAD + LATER


@pytest.mark.parametrize("command", [fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC], ids=["F_DUPFD", "F_DUPFD_CLOEXEC"])
def test_copied_by_fcntl(pair: Pair, command: int) -> None:
    near, far = pair
    number = fcntl.fcntl(near, command, 0)
    near.close()
    following = Task(end_stream, far)
    with KernelSocket(fileno=number) as copied:
        assert read_to_eof(copied) == UNREAD + LATER
        os.write(number, b"by the copy")
    assert following.result() == SENT + b"by the copy"


@pytest.mark.skipif(not hasattr(os, "splice"), reason="from Python 3.10 on, where the C library has it")
def test_spliced(pair: Pair) -> None:
    near, far = pair
    following = Task(end_stream, far)
    exit_, entry = os.pipe()
    received = bytearray()
    while moved := os.splice(near.fileno(), entry, 5_000):
        while moved > 0:
            received += (data := os.read(exit_, moved))
            moved -= len(data)
    assert received == UNREAD + LATER
    os.write(entry, b"through a pipe")
    assert os.splice(exit_, near.fileno(), 14) == 14
    near.close()
    os.close(entry)
    os.close(exit_)
    assert following.result() == SENT + b"through a pipe"


def test_signals_written_to_it(pair: Pair) -> None:
    near, far = pair
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
    following = Task(end_stream, far)
    assert read_to_eof(near) == UNREAD + LATER
    near.close()
    assert following.result() == SENT + bytes([signal.SIGUSR1]) * 5


def dump_now(near: socket.socket, file: "int | socket.socket") -> None:
    faulthandler.dump_traceback(file, all_threads=False)


def dump_at_a_signal(near: socket.socket, file: "int | socket.socket") -> None:
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=False)
    signal.raise_signal(signal.SIGUSR2)
    faulthandler.unregister(signal.SIGUSR2)


@pytest.mark.parametrize("by_number", [False, True], ids=["socket", "number"])
@pytest.mark.parametrize("dump", [dump_now, dump_at_a_signal])
def test_tracebacks_written_to_it(pair: Pair, dump: Callable[..., None], by_number: bool) -> None:
    near, far = pair
    dump(near, near.fileno() if by_number else near)
    near.sendall(b"behind it")
    following = Task(end_stream, far)
    assert read_to_eof(near) == UNREAD + LATER
    near.close()
    received = following.result()
    assert received.startswith(SENT)
    assert Path(__file__).name.encode() in received
    assert received.endswith(b"behind it")


def test_a_number_of_its_own_costs_nothing(pair: Pair, kind: str) -> None:
    """A copy under a number that nobody has stays on the ring, by `dup2` as by `dup`."""
    near, _ = pair
    number = os.dup(0)
    os.close(number)
    os.dup2(near.fileno(), number)
    os.write(number, b"by the copy")
    os.close(number)
    if KINDS[kind].moved:
        pair.check_path()
