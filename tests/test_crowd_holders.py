"""Connections that several processes hold or hand on: forked children, PID namespaces, programs that exec."""

import contextlib
import os
import signal
import textwrap
from collections.abc import Iterator

import pytest
from crowd import PEER, PRELUDE, report_of, running, serving
from pairs import until
from processes import Program
from test_pid_namespaces import may_unshare

pytestmark = pytest.mark.usefixtures("bounded")


SIDES = ("connects", "accepts")
"""What the process does whose children inherit the connection."""

HOLDER = """
sock = joined(int(sys.argv[1]))
settle(sock)
say("settled")
"""


@contextlib.contextmanager
def held(path: str, side: str, body: str, *arguments: object) -> Iterator[Program]:
    """A program that has a connection `sock` whose peer answers. It has to end well, and the stream with it."""
    with contextlib.ExitStack() as stack:
        if side == "accepts":
            holder = stack.enter_context(running(HOLDER + textwrap.dedent(body), path, 0, *arguments))
            peer = stack.enter_context(running(PEER, path, holder.line()))
        else:
            peer = stack.enter_context(running(PEER, path, 0))
            holder = stack.enter_context(running(HOLDER + textwrap.dedent(body), path, peer.line(), *arguments))
        assert holder.line() == "settled"
        yield holder
        assert holder.wait() == 0
        assert peer.line() == "ended"
        assert peer.wait() == 0


# ---- forked children


@pytest.mark.parametrize("side", SIDES)
def test_a_family_in_turns(path: str, side: str) -> None:
    """Parent, three children and a grandchild use the one connection, one after the other. The last one ends it."""
    with held(path, side, """
        pipes = [os.pipe() for _ in range(5)]
        def use(place):
            for number in range(20):
                if place or number:
                    assert os.read(pipes[place][0], 1) == b"!"
                converse(sock, 1 + place)
                ask(sock, 40_000, 40_000)
                if place < 4 or number < 19:
                    os.write(pipes[(place + 1) % 5][1], b"!")
            sock.close()
        def use_with_child():
            grandchild = forked(use, 4)
            use(3)
            ended_well(grandchild)
        children = [forked(use, 1), forked(use, 2), forked(use_with_child)]
        use(0)
        ended_well(*children)
    """):  # fmt: skip
        pass


@pytest.mark.parametrize("asleep", ["recv", "sendall"])
@pytest.mark.parametrize("end", ["exits", "killed"])
@pytest.mark.parametrize("side", SIDES)
def test_a_child_goes_while_its_parent_sleeps(path: str, side: str, end: str, asleep: str) -> None:
    """One that has used the connection, and one that has not. The parent is woken by what it waits for."""
    with held(path, side, """
        end, asleep = sys.argv[2:]
        for used in (True, False):
            def go():
                if used:
                    converse(sock, 5)
                os.write(here, b"!")
                until_asleep(os.getppid())
                if end == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if used:
                    sock.close()
            wait, here = os.pipe()
            child = forked(go)
            os.read(wait, 1)
            if asleep == "recv":
                ask(sock, rest=100)
            else:
                ask(sock, 8 << 20, rest=100)
            assert ended(child) == (-signal.SIGKILL if end == "killed" else 0)
            converse(sock, 5)
    """, end, asleep):  # fmt: skip
        pass


@pytest.mark.parametrize("end", ["exits", "killed"])
@pytest.mark.parametrize("side", SIDES)
def test_a_parent_goes_while_its_child_sleeps(path: str, side: str, end: str) -> None:
    with held(path, side, """
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        wait, here = os.pipe()
        def live():
            os.write(here, b"!")
            ask(sock, rest=100)
            converse(sock, 10)
            ask(sock, 8 << 20, rest=100)
        def parent():
            child = forked(live)
            os.read(wait, 1)
            until_asleep(child)
            if sys.argv[2] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        first = forked(parent)
        sock.close()
        statuses = dict(os.wait() for _ in range(2))  # the orphan's, too
        assert statuses.pop(first) == (signal.SIGKILL if sys.argv[2] == "killed" else 0)
        assert list(statuses.values()) == [0]
    """, end):  # fmt: skip
        pass


# ---- PID namespaces

needs_namespaces = pytest.mark.skipif(not may_unshare(), reason="this user may make no PID namespace")

ANSWERS = """
with connected(int(sys.argv[1]), sys.argv[2] == "True") as sock:
    settle(sock)
    say("settled")
    told()
    converse(sock, 20)
"""


@needs_namespaces
@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize("elsewhere", ["server", "client", "both"])
def test_pid_namespaces(path: str, publishes: bool, elsewhere: str) -> None:
    """One side in one of its own, or each side. They share the network namespace, so their connection moves. A client
    there is killed, and with it its namespace: the others go on."""
    pids = [{"CROWD_PIDS": "new"} if elsewhere in (who, "both") else {} for who in ("server", "client")]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(path, **pids[0]))
        if pids[0]:
            server.line()
        port = server.line()
        clients = [stack.enter_context(running(ANSWERS, path, port, publishes, **pids[1])) for _ in range(3)]
        numbers = [int(client.line()) if pids[1] else client.pid for client in clients]
        assert [client.line() for client in clients] == ["settled"] * 3
        held = report_of(server)["descriptors"]
        os.kill(numbers[0], signal.SIGKILL)
        until(lambda: report_of(server)["descriptors"] < held, "the server has noticed")
        for client in clients[1:]:
            client.tell()
            assert client.wait() == 0


# ---- exec

AFTER = """
sock = socket.socket(fileno=int(sys.argv[1]))
if sys.argv[2] == "unread":
    got = read_all(sock, 4000)
    assert got == answer_to(b"before exec", 4000)
converse(sock, 20)
sock.close()
say("went on")
"""


@pytest.mark.parametrize(("into", "unread"), [("plain", ""), ("plain", "unread"), ("fastsock", "unread")])
@pytest.mark.parametrize("side", SIDES)
def test_a_program_that_execs_with_a_connection(path: str, side: str, into: str, unread: str) -> None:
    """Into one under fastsock or a plain one. What lies unread is there for it."""
    with held(path, side, """
        after, into, unread = sys.argv[2:]
        if unread:
            sock.sendall(request(b"before exec", 4000))
            select.select([sock], [], [], SECONDS)
        os.set_inheritable(sock.fileno(), True)
        command = [sys.executable, "-c", after, str(sock.fileno()), unread]
        os.execve(sys.executable, command, {**os.environ, "CROWD_PATH": into})
    """, PRELUDE + AFTER, into, unread) as holder:  # fmt: skip
        assert holder.line() == "went on"


@pytest.mark.parametrize("side", SIDES)
def test_a_program_that_execs_without_its_connection(path: str, side: str) -> None:
    """The number is closed by exec, and the peer's stream ends: `held` checks that."""
    with held(path, side, """
        os.execve(sys.executable, [sys.executable, "-c", "print('another program', flush=True)"], os.environ)
    """) as holder:  # fmt: skip
        assert holder.line() == "another program"
