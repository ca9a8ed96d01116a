"""fastsock's own descriptors, which a program may close with all others, and whose numbers it may take."""

import os
import textwrap
from contextlib import closing

import pytest
from conformance.blocking.processes import forked
from harness.pairs import SECONDS, deadline, read_exactly
from harness.processes import connect, running, settle

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

WAYS = {
    "close": "lambda number: libc.close(number)",
    "file": "lambda number: libc.dup2(stranger.fileno(), number)",
    "socket": "lambda number: libc.dup2(theirs.fileno(), number)",
    "all": "lambda number: None",
}
"""What C code does to the numbers: closes them, which fails; or gives them to a regular file, or to a socket with
something to read. Or
all numbers of our share are closed at once, which leaves them open."""

PROGRAM = """
import ctypes, resource, tempfile
libc = ctypes.CDLL(None)
stranger = tempfile.TemporaryFile()
stranger.write(b"0123456789abcdef")
stranger.flush()
stranger.seek(4)
ours, theirs = socket.socketpair()
ours.sendall(b"unread")
theirs.setblocking(False)
def own_eventfds():
    if CLOSES == "all":  # of our share of the numbers, which the thread's epoll and its socket for requests lie in too
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(limit - limit // 16, limit)
        return [limit - 1]
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventfd]":
                found.append(int(name))
        except FileNotFoundError:
            pass
    return found
def check_strangers():
    assert stranger.tell() == 4, stranger.tell()
    assert os.pread(stranger.fileno(), 100, 0) == b"0123456789abcdef"
    assert theirs.recv(100, socket.MSG_PEEK) == b"unread"
    try:
        got = ours.recv(100, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    raise AssertionError(got)
"""


@pytest.mark.parametrize("how", WAYS)
def test_a_file_that_takes_the_number_of_an_eventfd_is_left_alone(how: str) -> None:
    """And the connection goes on, with sleepers at both ends, and ends; and so do the next connections."""
    source = f"""
    CLOSES = {how!r}
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    fastsock.configure(poll_us=0).__enter__()
    listener = listening()
    say(listener.getsockname()[1])
    sock = listener.accept()[0]
    settle(sock, leads=False)
    numbers = own_eventfds()
    assert numbers
    take = {WAYS[how]}
    for number in numbers:
        take(number)
    say("taken")
    echoed = 0
    while data := read_exactly(sock, 10):
        sock.sendall(data)
        echoed += 1
    sock.close()
    check_strangers()
    for number in numbers:
        assert ({how!r} == "all") == (not os.path.exists(f"/proc/self/fd/{{number}}"))
    pid = os.fork()
    if not pid:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    for _ in range(3):
        with listener.accept()[0] as sock:
            settle(sock, leads=False)
            sock.sendall(b"again")
            sock.recv(1)
    check_strangers()
    say(echoed)
    """
    with (
        deadline(3 * SECONDS),
        fastsock.configure(move_after=0, poll_us=0),
        running(PROGRAM + textwrap.dedent(source)) as program,
    ):
        port = int(program.line())
        with closing(connect(port)) as sock:
            settle(sock)
            assert program.line() == "taken"
            for i in range(30):
                line = b"%010d" % i
                sock.sendall(line)
                assert read_exactly(sock, 10) == line
        for _ in range(3):
            with closing(connect(port)) as sock:
                settle(sock)
                assert read_exactly(sock, 5) == b"again"
        assert program.line() == "30"
        assert program.wait() == 0


def test_a_forked_child_keeps_the_program_s_first_descriptors() -> None:
    """What the parent published is closed in the child, and places that publish nothing have no descriptors."""
    before = [os.fstat(number).st_ino for number in range(3)]

    def check() -> None:
        assert [os.fstat(number).st_ino for number in range(3)] == before

    with closing(fastsock.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # the connection thread runs
        with forked(check):
            pass
