"""What two processes have in common from their first contact on: both see it, and it ends with either of them."""

import os
import pwd
import sys
from collections.abc import Iterator
from socket import MSG_WAITALL

import pytest
from harness.pairs import deadline, path_of, until
from harness.processes import ended, running

import fastsock
from fastsock.tools import introspection, ss
from mechanisms.test_subsequent_contact import connected, free_port, server, session

FEW = 24 << 10
"""Bytes that a parked region keeps, with the default settings."""


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with deadline(100), fastsock.configure(move_after=8):
        yield


def links(pid: int) -> dict[int | None, introspection.Link]:
    """The links of a process, by the process at the other end."""
    (process,) = until(lambda: introspection.query({pid}), "the process answers")
    return {link.peer_pid: link for link in process.links}


def link_with(pid: int, of: int | None = None) -> introspection.Link:
    return until(lambda: links(of or os.getpid()).get(pid), "there is a link")


def test_both_ends_see_the_same_link() -> None:
    port = free_port()
    with server(port) as process:
        until(lambda: session(port, 32) == "ring", "a session moves")
        with connected(port) as client:
            until(lambda: session(port, 32, client.dup()) == "ring", "another one moves")
            near, far = link_with(process.pid), link_with(os.getpid(), process.pid)
            assert near.in_use == far.in_use == 1
            assert near.user == far.user == os.geteuid()
            assert near.made == far.made >= 2
            assert near.bytes == far.bytes > 1 << 20
            assert near.peer == introspection.command_of(process.pid)
        until(lambda: link_with(process.pid).in_use == link_with(os.getpid(), process.pid).in_use == 0, "it is closed")
        assert link_with(process.pid).parked >= 1


def test_what_is_parked_is_used_again() -> None:
    port = free_port()
    with server(port) as process:
        until(lambda: session(port, 32) == "ring", "a session moves")
        before = link_with(process.pid).made
        for _ in range(20):
            session(port, 32)
        link = link_with(process.pid)
        assert link.made > before + 15
        assert 1 <= link.in_use + link.parked <= 4


def test_a_link_ends_with_the_other_process() -> None:
    """At both ends: with one that is killed, and one that is not."""
    port = free_port()
    with server(port) as process:
        until(lambda: session(port, 32) == "ring", "a session moves")
        client = f"""
            fastsock.patch(move_after=8)
            while True:
                with socket.create_connection(("127.0.0.1", {port})) as sock:
                    for _ in range(32):
                        sock.sendall(b"request")
                        assert sock.recv(100)
                    if path_of(sock) == "ring":
                        break
            say("moved")
            told()
        """
        with running(client) as other:
            assert other.line() == "moved"
            link_with(other.pid, process.pid)
            other.kill()
        until(lambda: other.pid not in links(process.pid), "the server's link with the killed client ends")
        assert os.getpid() in links(process.pid)
        session(port, 32)
        process.kill()
    until(lambda: process.pid not in links(os.getpid()), "the client's link with the killed server ends")


def test_an_idle_link_becomes_smaller() -> None:
    port = free_port()
    with server(port) as process:

        def upload() -> bool:
            """Touches many pages, and moves."""
            with connected(port) as client:
                for _ in range(32):
                    client.sendall(b"x" * 50_000)
                    for _ in range(50):
                        assert client.recv(1000, MSG_WAITALL)
                return path_of(client) == "ring"

        until(upload, "a session moves")
        for pid, of in ((process.pid, os.getpid()), (os.getpid(), process.pid)):
            link = until(lambda of=of, pid=pid: (it := links(of)[pid]).bytes <= FEW * it.parked and it, "it is small")
            assert link.parked >= 1
        until(lambda: session(port, 32) == "ring", "a session moves again")


def test_a_forked_child_has_none_of_its_parent_s_links() -> None:
    port = free_port()
    with server(port) as process:
        until(lambda: session(port, 32) == "ring", "a session moves")
        link = link_with(process.pid)
        child = os.fork()
        if not child:
            until(lambda: session(port, 32) == "ring", "a session of the child's moves")
            os._exit(0 if link_with(process.pid).made < link.made + 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert link_with(process.pid).parked == link.parked


def test_ss_shows_links() -> None:
    port = free_port()
    with server(port) as process:
        until(lambda: session(port, 32) == "ring", "a session moves")
        link_with(os.getpid(), process.pid)
        done = ended([sys.executable, "-m", "fastsock", "ss", "--links", str(process.pid)], None)
    assert (done.returncode, done.stderr) == (0, "")
    head, columns, line = done.stdout.splitlines()
    assert head.startswith(f"{process.pid}  ")
    assert columns.split() == [column.head for column in ss.LINKS]
    assert line.split()[:3] == [str(process.pid), str(os.getpid()), pwd.getpwuid(os.geteuid()).pw_name]


def test_links_fit_a_terminal() -> None:
    link = introspection.Link(
        peer_pid=4194304, peer="x" * 300, user=4294967294, in_use=10**5, parked=80, bytes=10**12, made=10**9
    )
    process = introspection.Process(
        pid=4194303, command="y" * 300, protocol=introspection.VERSION, gone={}, names=0, connections=(), links=(link,)
    )
    for width in (80, 120):
        lines = ss.table([process], width, links=True)
        assert len(lines) == 3
        assert max(map(len, lines)) <= width
    assert "4294967294" in lines[2]
