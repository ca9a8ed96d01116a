"""Connections that several processes hold or hand on: forked children, PID namespaces, programs that exec."""

import contextlib
import os
import signal
import textwrap
from collections.abc import Iterator

import pytest
from harness.pairs import until
from harness.processes import Program
from harness.scale import PEER, PRELUDE, report_of, running, serving
from hostile.test_pid_namespaces import may_unshare

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
