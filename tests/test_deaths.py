"""Running out of something, and peers killed with SIGKILL at every stage: kernel TCP or the end of the
connection, no byte lost, nothing left behind."""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest
from differential.processes import forked
from hostile import holdings, holdings_at_rest, hostile
from pairs import (
    SECONDS,
    Pair,
    Task,
    deadline,
    make_pair,
    path_of,
    pattern,
    payload,
    read_exactly,
    read_to_eof,
    until,
)
from processes import Program, running, settle

import fastsock


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What a process has once, whatever happens to its connections, is there before anything is counted."""
    with make_pair("ring"):
        pass


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(50):
        yield


def exchange(pair: Pair, rounds: int = 60) -> None:
    """Bytes both ways, each of which arrives."""
    for number in range(rounds):
        for sender, receiver in (tuple(pair), tuple(pair)[::-1]):
            data = payload(300, number)
            sender.sendall(data)
            assert read_exactly(receiver, 300) == data


# ---- out of something


def test_out_of_descriptors(request):
    """All taken by the program: the connection stays on kernel TCP; later ones move again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits))
    before = holdings_at_rest()
    with make_pair("midstream") as pair, contextlib.ExitStack() as taken:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012 - which call fails is the kernel's to say
            while True:
                taken.callback(os.close, os.dup(1))
        exchange(pair)
        assert [path_of(sock) for sock in pair] == ["tcp", "tcp"]
        assert {fastsock.path_of(sock).reason for sock in pair} == {"out of memory or descriptors"}
    with make_pair("ring") as pair:
        exchange(pair, 5)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    until(lambda: holdings() == before, "nothing is left behind")  # some of it is closed by threads of their own


def limit_address_space(spare: int) -> None:
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))


def test_out_of_address_space():
    def child() -> None:
        with fastsock.configure(window=1024, chunk_size=32768), make_pair("midstream") as pair:
            limit_address_space(8 << 20)
            exchange(pair)
            assert [path_of(sock) for sock in pair] == ["tcp", "tcp"]

    with forked(child):
        pass


def test_publisher_without_address_space_asks_to_come_again():
    def child() -> None:
        with hostile(window=1024, chunk=32768) as peer:
            peer.knock()
            memfd = peer.make_region()
            limit_address_space(8 << 20)
            peer.say_hello([memfd])
            assert peer.control.recv(10) == b"?"
            peer.chat()
            assert path_of(peer.victim) == "tcp"

    with forked(child):
        pass


# ---- killed

STAGES = {
    "published": (True, "published"),
    "hello sent": (False, "awaiting"),
    "publisher attached": (True, "attached"),
    "seeker attached": (False, "attached"),
}

STOPS = """
port, publishes, stage = int(sys.argv[1]), sys.argv[2] == "True", sys.argv[3]
sock = connect(port, publishes)
reached = lambda: sock._endpoint.attached if stage == "attached" else sock._endpoint.stage == stage
while True:
    sock.sendall(b"x" * 10)
    if reached():  # (the next operation may go on already)
        break
    sock.recv(1)
    if reached():
        break
say("there")
told()
"""


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, int]]:
    with fastsock.configure(move_after=0), fastsock.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        listener.settimeout(SECONDS)
        yield listener, listener.getsockname()[1]


@contextlib.contextmanager
def accepted(source: str, *arguments: object) -> Iterator[tuple[socket.socket, Program]]:
    """A program connected to us."""
    with listening() as (listener, port), running(source, port, *arguments) as program:
        near = listener.accept()[0]
        near.settimeout(SECONDS)
        with near:
            yield near, program


@pytest.mark.parametrize("stage", STAGES)
def test_killed_during_the_handshake(stage):
    with make_pair("ring") as pair:
        before = holdings_at_rest()
        publishes, name = STAGES[stage]
        with accepted(STOPS, publishes, name) as (near, program):
            received = 0
            talking = Task(program.line)
            while talking.is_alive():
                near.sendall(b"y")
                near.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    received += len(near.recv(100))
            assert talking.result() == "there"
            near.settimeout(SECONDS)
            program.kill()
            with contextlib.suppress(ConnectionResetError):
                while data := near.recv(100):
                    received += len(data)
            assert received % 10 == 0
        exchange(pair, 3)
        until(lambda: holdings() == before, "nothing is left of the connection")


def test_killed_before_accept():
    source = "sock = connect(int(sys.argv[1])); say('connected'); told()"
    with listening() as (listener, port), running(source, port) as program:
        assert program.line() == "connected"
        program.kill()
        with listener.accept()[0] as near:
            near.settimeout(SECONDS)
            assert near.recv(1) == b""


def refused(sock: socket.socket) -> bool:
    """Whether a send fails because nobody is there any more. (The kernel's reset may come a moment after a send.)"""
    try:
        sock.sendall(b"z")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


MOVED = "sock = connect(int(sys.argv[1])); settle(sock, leads=False); "
TRANSFERS = {
    "sending": "sock.sendall(pattern(300_000)); say('sent'); sock.sendall(bytes(1 << 30))",
    "sent": "sock.sendall(pattern(300_000)); say('sent'); told()",
    "receiving": "say('sent'); n = 0\nwhile sock.recv(1000): pass",
    "not reading": "say('sent'); told()",
}


@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_killed_during_a_transfer(transfer, publishes):
    """What it had sent is delivered, a sender that waits is told, and then the connection has ended."""
    source = f"sock = connect(int(sys.argv[1]), {publishes})\nsettle(sock, leads=False)\n{TRANSFERS[transfer]}"
    before = holdings_at_rest()
    with accepted(source) as (near, program):
        settle(near)
        assert program.line() == "sent"
        if transfer in ("sending", "sent"):
            assert read_exactly(near, 300_000) == pattern(300_000)
            program.kill()
            with contextlib.suppress(ConnectionResetError):
                read_to_eof(near)
        else:
            writer = Task(near.sendall, bytes(1 << 26 if transfer == "not reading" else 1 << 20))
            if transfer == "not reading":
                writer.until_asleep()
            else:
                writer.result()
            program.kill()
            with contextlib.suppress(ConnectionResetError):
                assert near.recv(1) == b""
            if transfer == "not reading":
                with pytest.raises((BrokenPipeError, ConnectionResetError)):
                    writer.result()
            until(lambda: refused(near), "a send fails")
    until(lambda: holdings() == before, "nothing is left of the connection")


def test_bytes_sent_before_the_kill_outlive_it():
    """Nothing was read before the process died."""
    source = MOVED + "sock.sendall(pattern(500_000)); say('sent'); told()"
    with accepted(source) as (near, program):
        settle(near)
        assert program.line() == "sent"
        program.kill()
        assert read_exactly(near, 500_000) == pattern(500_000)
        assert near.recv(1) == b""


@pytest.mark.parametrize("how", ["sock.close()", "sock.shutdown(socket.SHUT_WR)", "sock.shutdown(socket.SHUT_RDWR)"])
def test_killed_during_close(how):
    source = MOVED + f"sock.sendall(b'last words'); {how}; say('x'); told()"
    before = holdings_at_rest()
    with accepted(source) as (near, program):
        settle(near)
        assert program.line() == "x"
        program.kill()
        assert read_to_eof(near) == b"last words"
        until(lambda: refused(near), "a send fails")
    until(lambda: holdings() == before, "nothing is left of the connection")


@pytest.mark.parametrize("size", [1, 1000, 5000])
def test_sender_that_never_reads_is_told_of_a_killed_peer(size):
    """TCP fails the second send or so. Here it takes longer, but not forever."""
    source = MOVED + "say('x'); told()"
    with accepted(source) as (near, program):
        settle(near)
        assert program.line() == "x"
        program.kill()

        def fails() -> bool:
            try:
                near.send(bytes(size))
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        until(fails, "a send fails")


def test_killed_child_of_a_holder_does_not_keep_a_connection_from_moving():
    with make_pair("midstream") as pair:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), 9)
        os.waitpid(pid, 0)
        exchange(pair, 60)
        pair.check_path()
