"""Liveness checks of connection pools: between two requests a kept connection has nothing to read."""

import select
import socket

import pytest
from harness.pairs import SECONDS, deadline
from harness.processes import connect, running, settle

import fastsock

SERVER = """
with listening() as listener:
    say(listener.getsockname()[1])
    sock, _ = listener.accept()
    settle(sock, leads=False)
    sock.fileno()
    while request := sock.recv(100):
        sock.sendall(request)
    say(fastsock.path_of(sock).path)
"""


def nothing_to_read(sock: socket.socket, poll: select.poll) -> bool:
    """As urllib3, httpcore and redis-py look, and as libpq and others do."""
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return not poll.poll(0)
    return False


@pytest.mark.parametrize("polls", ["0", "50", "1000"])
def test_idle_connection_is_never_readable(polls):
    """Whether the client polls or sleeps for the answer: its doorbell byte does not come after it, and none is left."""
    with (
        deadline(50),
        fastsock.configure(move_after=0, poll_us=int(polls)),
        running(SERVER, FASTSOCK_POLL_US=polls) as server,
        connect(int(server.line())) as sock,
    ):
        sock.settimeout(SECONDS)
        settle(sock)
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN | select.POLLRDHUP)
        stale = 0
        for _ in range(6000):
            sock.sendall(b"request")
            assert sock.recv(100) == b"request"
            stale += bool(poll.poll(0))
        assert stale == 0
        sock.settimeout(None)  # with a timeout, Python waits whatever the flag says
        assert nothing_to_read(sock, poll)
        assert fastsock.path_of(sock).path == "ring"
        sock.shutdown(socket.SHUT_WR)
        assert server.line() == "ring"
