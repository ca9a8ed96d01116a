"""Few descriptors: a program that works without fastsock has its numbers with fastsock too, and loses no connection."""

import contextlib
import errno
import json
import os
import resource
import socket
from collections.abc import Callable, Iterator

import pytest
from hostile import Peer, drop_parked, hostile, violations
from pairs import KernelSocket, bind_beside, deadline, make_pair, path_of, until
from processes import running

import fastsock
from fastsock._native import connector


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(100):
        yield


# ---- two processes with as many connections as their limit permits -----------------------------------------

SERVER = """
    import resource
    limit, count = int(sys.argv[1]), int(sys.argv[2])
    listener = fastsock.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(count)
    listener.settimeout(SECONDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    waits, sockets = select.epoll(), {}
    say(listener.getsockname()[1])
    waits.register(listener.fileno(), select.EPOLLIN)
    accepted = 0
    while accepted < count or sockets:
        for number, _ in waits.poll(1):
            if number == listener.fileno():
                sock, _ = listener.accept()
                accepted += 1
                sockets[sock.fileno()] = sock
                waits.register(sock.fileno(), select.EPOLLIN)
                continue
            data = sockets[number].recv(100)
            if data:
                sockets[number].sendall(data)
            else:
                waits.unregister(number)
                sockets.pop(number).close()
    say("served")
"""

CLIENT = """
    import collections, json, resource
    port, limit, count, at_once = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    sockets = []
    def ask(first, count):
        for number in range(first, first + count):
            sockets[number].sendall(b"%05d" % number)
        for number in range(first, first + count):
            assert sockets[number].recv(5, socket.MSG_WAITALL) == b"%05d" % number, number
    for number in range(count):
        sock = fastsock.socket()
        sock.settimeout(SECONDS)
        sock.connect(("127.0.0.1", port))
        sockets.append(sock)
        for _ in range(3 if at_once == 1 else 0):
            ask(number, 1)
    say("connected")
    for _ in range(8):
        for number in range(0, count, at_once):
            ask(number, at_once)
        say("asked all")
    until = time.monotonic() + 80
    while any(fastsock.path_of(sock).path != "ring" for sock in sockets) and time.monotonic() < until:
        for number in range(0, count, at_once):
            ask(number, at_once)
    paths = [fastsock.path_of(sock) for sock in sockets]
    say(json.dumps(collections.Counter(path.reason for path in paths if path.path != "ring")))
    for sock in sockets:
        sock.close()
    say("asked")
"""


@pytest.mark.parametrize(("count", "at_once"), [(300, 300), (900, 1)])
def test_as_many_connections_as_on_kernel_tcp(count: int, at_once: int) -> None:
    """Nobody gets EMFILE, nothing is reset, each byte arrives; and all move, or say why not.
    `at_once`: so many ask before one hears an answer."""
    with running(SERVER, 1024, count) as server, running(CLIENT, server.line(), 1024, count, at_once) as client:
        assert [client.line() for _ in range(9)] == ["connected", *["asked all"] * 8]
        stayed = json.loads(client.line(90))
        assert set(stayed) <= {"out of memory or descriptors"}
        assert sum(stayed.values()) <= count / 20
        assert client.line() == "asked"
        assert server.line() == "served"


# ---- a process whose descriptors run out while connections meet ----------------------------------------------

WITHOUT_PROC = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if (libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None)
            or libc.mount(b"none", b"/proc", b"tmpfs", 0, None)):
        raise OSError(ctypes.get_errno(), "no /proc could be hidden")
"""
SHORT = """
    import resource
    def run_short(free):
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        kept = []
        try:
            while True:
                kept.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        for _ in range(free):
            os.close(kept.pop())
"""
ANSWERING = """
    listener = fastsock.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    say(listener.getsockname()[1])
    def echo(sock):
        while data := sock.recv(100):
            sock.sendall(data)
    free, threads = int(sys.argv[1]), []
    for number in range(3):
        sock, _ = listener.accept()
        thread = threading.Thread(target=echo, args=(sock,))
        thread.start()
        threads.append(thread)
        if number == 0 and free >= 0:
            time.sleep(0.2)
            run_short(free + 2)  # for the two accepts
    for thread in threads:
        thread.join()
    say("answered")
"""
ASKING = """
    free, sockets = int(sys.argv[2]), []
    for number in range(3):
        sock = fastsock.socket()
        sock.settimeout(SECONDS)
        sock.connect(("127.0.0.1", int(sys.argv[1])))
        sockets.append(sock)
        if number == 0 and free >= 0:
            run_short(free + 2)  # for the two connects
        for _ in range(60):
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
    for sock in sockets:
        sock.close()
    say("asked")
"""


@pytest.mark.parametrize("proc", [True, False], ids=["", "without_proc"])
@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("free", range(7))
def test_a_few_free_numbers_reset_nothing(free: int, side: str, proc: bool) -> None:
    """With so many left after the program has what it needs, on one side, while connections meet."""
    if not proc and os.geteuid():
        pytest.skip("only root hides /proc")
    before = SHORT if proc else SHORT + WITHOUT_PROC
    short = {"server": (free, -1), "client": (-1, free)}[side]
    with running(before + ANSWERING, short[0]) as server, running(before + ASKING, server.line(), short[1]) as client:
        assert client.line() == "asked"
        assert server.line() == "answered"


def test_connections_move_without_proc() -> None:
    if os.geteuid():
        pytest.skip("only root hides /proc")
    serve = "sock = fastsock.socket(); sock.bind(('127.0.0.1', 0)); sock.listen(1); say(sock.getsockname()[1])\n"
    serve = WITHOUT_PROC + "    " + serve + "    settle(sock.accept()[0], leads=False)\n    told()"
    ask = WITHOUT_PROC + "    settle(connect(int(sys.argv[1])))\n    say('moved')"
    with running(serve) as server, running(ask, server.line()) as client:
        assert client.line() == "moved"


# ---- our share -------------------------------------------------------------------------------------------------


def fill_up(upto: int) -> list[int]:
    """Takes the program's numbers below `upto`."""
    taken = []
    while not taken or taken[-1] < upto - 1:
        taken.append(os.dup(1))
    return taken


@pytest.fixture
def limited() -> Iterator[int]:
    """A limit of 1,024, and our share's first number."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    drop_parked()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    yield 1024 - 64
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def fill_share(make: Callable[[], int]) -> list[int]:
    """Makes descriptors of ours until the share is full."""
    made = []
    with contextlib.suppress(BlockingIOError):
        while True:
            made.append(make())
    return made


SHARES = [(1024, 960, 64, 32), (2048, 1024, 128, 64), (8192, 1024, 1024, 256), (20000, 1024, 2500, 256)]
"""Limit; the share's first number, how many it has, and how many of them names and visitors leave to others."""


@pytest.mark.parametrize(("limit", "first", "size", "kept"), SHARES)
def test_our_descriptors_stay_in_our_share(limited: int, limit: int, first: int, size: int, kept: int) -> None:
    """The numbers above 1,023, if there are any: low, and none that select could use. Otherwise the last sixteenth."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < limit:
        pytest.skip(f"needs a hard limit of {limit} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    high = [] if limit == 1024 else [*range(limit - size, limit)]
    made = fill_share(lambda: connector.keep_away(os.dup(1), passing=True))
    try:
        assert made == [*range(first + kept, first + size), *high[kept:]][: len(made)]
        assert len(made) >= size - kept
        made += fill_share(connector.new_eventfd)
        assert {*range(first, first + size)} <= {*made} <= {*range(first, first + size), *high}
    finally:
        for fd in made:
            os.close(fd)


MOVES_ONE = """
    import resource
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    listener = fastsock.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    near = connect(listener.getsockname()[1])
    far = listener.accept()[0]
    with fastsock.configure(move_after=0):
        while fastsock.path_of(near).path != "ring" or fastsock.path_of(far).path != "ring":
            for one, other in (near, far), (far, near):
                one.sendall(b"x")
                other.recv(1)
    say(max(int(name) for name in os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize(("limit", "highest"), [(1024, 1023), (4096, 2047), (20000, 2047), (1048576, 2047)])
def test_a_moved_connection_leaves_the_table_of_descriptors_small(limit: int, highest: int) -> None:
    """The kernel's table grows in powers of two, each fork copies it, and some programs go through it."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < limit:
        pytest.skip(f"needs a hard limit of {limit} descriptors")
    with running(MOVES_ONE, limit) as program:
        assert int(program.line()) <= highest


def test_a_program_near_its_limit_is_left_alone(limited: int) -> None:
    taken = fill_up(limited - 4)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)) as failed:
            connector.new_eventfd()
        assert failed.value.errno == errno.EMFILE
    finally:
        for fd in taken:
            os.close(fd)


def take_all() -> list[int]:
    taken = []
    try:
        while True:
            taken.append(os.dup(1))
    except OSError as error:
        assert error.errno == errno.EMFILE  # noqa: PT017 - the loop ends so
    return taken


def has_visitor(first: int) -> bool:
    """Whether the connection thread has accepted somebody at a name."""
    for number in range(first, 1024):
        try:
            sock = KernelSocket(fileno=number)
        except OSError:
            continue  # no socket
        connected = sock.type == socket.SOCK_SEQPACKET and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        sock.detach()
        if connected:
            return True
    return False


def short(peer: Peer) -> bool:
    """Whether the victim, after its next step, has decided for kernel TCP for want of descriptors."""
    peer.chat()
    return fastsock.path_of(peer.victim) == fastsock.Path("tcp", "out of memory or descriptors")


def test_a_publisher_short_of_descriptors_says_so(limited: int, caplog: pytest.LogCaptureFixture) -> None:
    """The hello's descriptors find no numbers: kernel TCP, at both ends for the same reason, and nothing is reset."""
    with hostile() as peer:
        peer.knock()
        until(lambda: has_visitor(limited), "the visitor is accepted, and only its hello finds no numbers")
        taken = take_all()
        try:
            memfd = peer.tcp.fileno()  # whatever it is: nobody gets to look at it
            peer.say_hello([memfd, memfd, memfd])
            assert peer.control is not None
            assert peer.control.recv(10) == b"!"
        finally:
            for fd in taken:
                os.close(fd)
        until(lambda: short(peer), "the victim hears of it from its connection thread")
        assert not violations(caplog)


def test_a_seeker_is_told_that_the_publisher_is_short() -> None:
    with hostile(publishes=True) as peer:
        peer.await_hello()
        assert peer.control is not None
        peer.control.send(b"!")
        until(lambda: short(peer), "the seeker hears of it")


def test_seekers_leave_numbers_for_names(limited: int) -> None:
    """More connections look for their peer than there are numbers for meetings, and another one still moves."""
    with contextlib.ExitStack() as opened, KernelSocket() as listener, fastsock.configure(move_after=0):
        bind_beside(listener, 32768, below=True)
        listener.listen(64)
        for _ in range(40):
            near = opened.enter_context(fastsock.socket())
            bind_beside(near, 32768, below=False)  # the larger port looks for the name
            near.connect(listener.getsockname())
            far = opened.enter_context(listener.accept()[0])
            near.sendall(b"x")
            far.sendall(far.recv(1))
            assert near.recv(1) == b"x"
            assert fastsock.path_of(near) == fastsock.Path("tcp", "looking for the peer")
        with make_pair("ring") as pair:
            assert [path_of(sock) for sock in pair] == ["ring", "ring"]


@pytest.mark.parametrize("call", ["accept", "dup", "socket"])
def test_a_call_that_finds_no_number_gets_one_of_a_meetings(limited: int, call: str) -> None:
    """A connection has published its name, and the program has all other numbers."""
    with contextlib.ExitStack() as opened, KernelSocket() as listener, fastsock.configure(move_after=0):
        bind_beside(listener, 32768, below=False)
        listener.listen(1)
        near = opened.enter_context(fastsock.socket())
        bind_beside(near, 32768, below=True)  # the smaller port publishes
        near.connect(listener.getsockname())
        opened.enter_context(listener.accept()[0]).sendall(b"x")
        assert near.recv(1) == b"x"
        assert fastsock.path_of(near) == fastsock.Path("tcp", "looking for the peer")
        server = opened.enter_context(fastsock.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        opened.enter_context(KernelSocket()).connect(server.getsockname())
        taken = take_all()
        try:
            {"accept": lambda: server.accept()[0], "dup": server.dup, "socket": fastsock.socket}[call]().close()
        finally:
            for fd in taken:
                os.close(fd)
        assert fastsock.path_of(near) == fastsock.Path("tcp", "out of memory or descriptors")
