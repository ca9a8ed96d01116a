"""Sessions between processes that have met before move by a region that both still have, before a name is published."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.pairs import SECONDS, KernelSocket, bind_beside, deadline, path_of, payload, read_exactly, until
from harness.processes import running

import fastsock

SERVER = """
import contextlib, fastsock, os, socket, threading
workers = {workers}
fastsock.patch()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", {port}))
listener.listen(64)

def serve():
    while True:
        sock, _ = listener.accept()
        with sock, contextlib.suppress(ConnectionError):
            while data := sock.recv(1 << 16):
                sock.sendall(data)

for _ in range(workers):
    if os.fork() == 0:
        serve()
if not workers:
    threading.Thread(target=serve, daemon=True).start()
say("ready")
told()
with fastsock.configure(move_after={later}):
    say("later")
    told()
"""
LATER = 1_000_000
"""An operation that no session reaches: what moves has moved by a subsequent contact."""


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with deadline(100), fastsock.configure(move_after=8):
        yield


def free_port(seeker: str = "client") -> int:
    """Below the ports that the kernel gives to clients, or above them: the end with the larger port seeks."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    with KernelSocket() as sock:
        bind_beside(sock, first if seeker == "client" else last, below=seeker == "client")
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def server(port: int, workers: int = 0) -> Iterator[object]:
    with running(SERVER.format(port=port, workers=workers, later=LATER)) as process:
        assert process.line() == "ready"
        yield process


def connected(port: int) -> socket.socket:
    client = fastsock.socket()
    client.settimeout(SECONDS)
    client.connect(("127.0.0.1", port))
    return client


def session(port: int, requests: int, sock: socket.socket | None = None) -> str:
    """The path on which it ends."""
    with sock or connected(port) as client:
        for number in range(requests):
            data = payload(100 + number)
            client.sendall(data)
            assert read_exactly(client, len(data)) == data
        return path_of(client)


def meet(port: int) -> None:
    until(lambda: session(port, 32) == "ring", "a session moves")
    for _ in range(12):  # sessions of this service last, as both ends know then
        session(port, 32)


@contextlib.contextmanager
def met(seeker: str = "client") -> Iterator[int]:
    """The port of a server that has regions in common with this process; neither end uses a name from now on."""
    port = free_port(seeker)
    with server(port) as process:
        meet(port)
        process.tell()
        assert process.line() == "later"
        with fastsock.configure(move_after=LATER):
            yield port


@pytest.mark.parametrize("seeker", ["client", "server"])
def test_sessions_of_processes_that_have_met_need_no_name(seeker: str) -> None:
    with met(seeker) as port:
        for _ in range(20):
            until(lambda: session(port, 8) == "ring", "a session moves")


def test_a_connection_that_waits_to_be_served_finds_its_region_later() -> None:
    """It has posted long before the server takes its first step; so have others."""
    with met() as port:

        def paths() -> list[str]:
            clients = [connected(port) for _ in range(3)]
            for client in clients:  # one after the other is served: the second one's bytes wait in the kernel meanwhile
                client.sendall(b"hello")
            found = []
            for client in clients:
                assert read_exactly(client, 5) == b"hello"
                found.append(session(port, 8, client))
            return found

        until(lambda: "ring" in paths(), "one of them moves")


def test_a_server_that_is_started_again() -> None:
    """What both had is gone; first contact again."""
    port = free_port()
    for _ in range(2):
        with server(port):
            meet(port)


def test_one_of_several_workers_has_the_region() -> None:
    port = free_port()
    with server(port, workers=3):
        paths = [session(port, 64) for _ in range(60)]
    assert paths.count("ring") > 50


def test_a_session_that_ends_early_leaves_the_region_to_the_next() -> None:
    with met() as port:
        for requests in (1, 0, 2, 1):
            session(port, requests)
        until(lambda: session(port, 16) == "ring", "a session moves")


def test_a_server_without_fastsock_takes_the_place_of_one_with_it() -> None:
    port = free_port()
    with server(port):
        meet(port)
    with KernelSocket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        for _ in range(6):
            with connected(port) as client, listener.accept()[0] as far:
                for _ in range(32):
                    client.sendall(b"question")
                    assert read_exactly(far, 8) == b"question"
                    far.sendall(b"answer")
                    assert read_exactly(client, 6) == b"answer"
                assert path_of(client) == "tcp"


CLIENT = """
import fastsock, socket
fastsock.patch()
for requests in [32] * 12 + [1]:
    sock = socket.socket()
    if requests == 1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", {port}))
    sock.connect(("127.0.0.1", {to}))
    for _ in range(requests):
        sock.sendall(b"of the dead")
        assert sock.recv(100) == b"of the dead"
    if requests == 1:
        say("posted")
        told()
    sock.close()
"""


def test_who_gets_the_port_of_a_killed_client_gets_nothing_of_it() -> None:
    port, from_port = free_port(), 0
    with server(port):
        with KernelSocket() as sock:
            bind_beside(sock, 32768, below=False)
            from_port = sock.getsockname()[1]
        with running(CLIENT.format(port=from_port, to=port)) as client:
            assert client.line() == "posted"
            client.kill()
        foreign = KernelSocket()
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", from_port))
        foreign.settimeout(SECONDS)
        foreign.connect(("127.0.0.1", port))
        assert session(port, 32, foreign) == "tcp"


def test_a_client_that_forks_within_a_session() -> None:
    """The child has the connection for a while; what was posted is the parent's."""
    port = free_port()
    with server(port):
        meet(port)
        for _ in range(10):
            with connected(port) as client:
                client.sendall(b"before")
                assert read_exactly(client, 6) == b"before"
                child = os.fork()
                if not child:
                    time.sleep(0.01)
                    os._exit(0)
                for number in range(64):
                    data = payload(64 + number)
                    client.sendall(data)
                    assert read_exactly(client, len(data)) == data
                os.waitpid(child, 0)


def test_a_stopped_server_holds_nobody_up() -> None:
    port = free_port()
    with server(port) as process:
        meet(port)
        os.kill(process.pid, signal.SIGSTOP)
        until(
            lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it is stopped"
        )
        with connected(port) as client:
            client.sendall(b"question")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)
            os.kill(process.pid, signal.SIGCONT)
            client.settimeout(SECONDS)
            assert read_exactly(client, 8) == b"question"
            session(port, 16, client)
