"""A forked child has taken over the requests of a connection's peer, and was killed: another holder is asked again."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest
from harness.pairs import eventually, listening, poll_mask, read_exactly
from harness.processes import Program, running

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

HOLDS = """
    fastsock.patch(move_after=0, _meeting_ms=2000)
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    sock.sendall(b".")
    assert sock.recv(1) == b"."
    for name in ("child", "other"):
        child = os.fork()
        if child == 0:
            sock.sendall(name.encode())  # from now on this process is asked
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        if sys.argv[2] == "one":
            break
    sock.sendall(b"parent")
    say(path_of(sock))
    told()
    say(sock.recv(100))
"""


@contextlib.contextmanager
def held(children: str) -> Iterator[tuple[socket.socket, Program]]:
    with (
        fastsock.configure(move_after=0, _meeting_ms=2000),
        listening() as listener,
        running(HOLDS, listener.getsockname()[1], children) as program,
        listener.accept()[0] as sock,
    ):
        assert sock.recv(1) == b"."
        sock.sendall(b".")
        assert program.line() == "ring"
        yield sock, program


SENT = {"one": b"childparent", "two": b"childotherparent"}


@pytest.mark.parametrize("then", ["polls", "leaves"])
@pytest.mark.parametrize("children", SENT)
def test_another_holder_is_asked(children: str, then: str) -> None:
    """A number that is handed out is readable, and the way out needs no bridge."""
    with held(children) as (sock, program):
        if then == "polls":
            eventually(lambda: poll_mask(sock) & select.POLLIN, select.POLLIN)
            assert sock.recv(100) == SENT[children]
            return
        name = sock.getsockname()
        with socket.socket(fileno=sock.detach()) as raw:
            assert raw.getsockname() == name, "a bridge stands there"
            assert read_exactly(raw, len(SENT[children])) == SENT[children]
            raw.sendall(b"raw")
            program.tell()
            assert program.line() == "b'raw'"
