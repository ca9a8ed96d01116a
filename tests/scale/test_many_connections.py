"""Crowds of client processes: all are answered, none is reset, and nothing of them stays behind."""

import contextlib
import json

import pytest
from harness.pairs import SECONDS, eventually
from harness.scale import excess, report_of, running, scaled, serving

SERVERS = ("threads", "asyncio", "uvloop")


pytestmark = pytest.mark.usefixtures("bounded")


# ---- many at once


def answered(path: str, kind: str, limit: int, processes: int, each: int = 1) -> int:
    """Lets a crowd talk to a server; returns how many of its connections were on the ring."""
    with (
        serving(path, kind, limit) as server,
        running("clients(*map(int, sys.argv[1:]))", path, server.line(), processes, each) as clients,
    ):
        moved = int(clients.line(3 * SECONDS))
        assert clients.wait() == 0
        assert report_of(server)["descriptors"] > 0, "the server lives"
    return moved


@pytest.mark.parametrize("kind", SERVERS)
def test_a_hundred_client_processes(path: str, kind: str) -> None:
    moved = answered(path, kind, 0, scaled(100))
    assert (moved > 0) == (path == "fastsock")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_of_few_descriptors(path: str, kind: str) -> None:
    """Two thirds of them are taken by connections."""
    moved = answered(path, kind, 256, 85, 2)
    assert (moved > 0) == (path == "fastsock")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_needs_all_but_the_last_sixteenth(path: str, kind: str) -> None:
    answered(path, kind, 256, 75, 3)


# ---- coming and going


COMING = """
port, count = map(int, sys.argv[1:])
def client():
    with connected(port) as sock:
        settle(sock)
while sys.stdin.readline():
    for _ in range(count // 10):
        ended_well(*(forked(client) for _ in range(10)))
    say(json.dumps(report()))
"""
EXECUTED = """
with connected(int(sys.argv[1])) as sock:
    settle(sock)
"""


@pytest.mark.parametrize(("kind", "count"), [("threads", 160), ("asyncio", 80), ("uvloop", 80)])
def test_clients_that_come_and_go(path: str, kind: str, count: int) -> None:
    """Forked ones and such as are started anew. Neither their server nor who forked them holds more afterwards than
    what is kept for the next one."""
    with serving(path, kind) as server, contextlib.ExitStack() as stack:
        port = server.line()
        coming = stack.enter_context(running(COMING, path, port, scaled(count // 2)))
        before, forks = report_of(server), []
        for _ in range(2):
            coming.tell()
            for _ in range(3):
                with running(EXECUTED, path, port) as program:
                    assert program.wait() == 0
            forks.append(json.loads(coming.line(3 * SECONDS)))
        assert forks[0] == forks[1]
        eventually(lambda: excess(before, report_of(server)), {})


# ---- two processes

HUNDREDS = """
import resource
port, limit, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
socks = []
for _ in range(count):
    socks.append(connected(port))
    converse(socks[-1], 3)
for _ in range(3):
    for sock in socks:
        converse(sock, 3)
say(json.dumps({"moved": sum(map(is_on_ring, socks)), **report()}))
for sock in socks:
    converse(sock, 1)
    sock.close()
"""


def hundreds(path: str, kind: str, limit: int, count: int) -> dict[str, int]:
    """So many connections between two processes with so many descriptors each, all of which are answered. Returns what
    the client holds, and how many of them have moved."""
    with serving(path, kind, limit) as server, running(HUNDREDS, path, server.line(), limit, count) as client:
        held: dict[str, int] = json.loads(client.line(3 * SECONDS))
        assert client.wait() == 0
        assert report_of(server)["descriptors"] > 0, "the server lives"
    return held


@pytest.mark.parametrize("kind", SERVERS)
def test_nine_hundred_connections(path: str, kind: str) -> None:
    """At the usual limit. Plain TCP has room for them. (How many have moved by then is a matter of time.)"""
    held = hundreds(path, kind, 1024, 900)
    assert (held["moved"] > 0) == (path == "fastsock")
    assert held["descriptors"] <= 900 + 10 + 32 * (path == "fastsock")


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_server_whose_descriptors_are_all_taken(path: str, kind: str) -> None:
    """Of 256 the program's connections need 240, which leaves fewer than fastsock's share: none of them is refused."""
    answered(path, kind, 256, 80, 3)


# ---- servers that fork before they accept


PREFORK = """
import errno
graceful, count = sys.argv[1] == "graceful", 4
listener, workers = listening(), []

def work(ready):
    def stop(*_):
        os.close(stops)
    waits, stops = os.pipe()
    signal.signal(signal.SIGTERM, stop)
    os.write(ready, b"!")
    threads = []
    while select.select([listener, waits], [], [])[0] == [listener]:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            continue  # another worker was quicker
        sock.setblocking(True)
        threads.append(threading.Thread(target=answer_and_close, args=(sock,)))
        threads[-1].start()
        del sock
    for thread in threads:
        thread.join()

def start():
    here, ready = os.pipe()
    workers.append(forked(work, ready))
    os.close(ready)
    assert os.read(here, 1)
    os.close(here)

listener.setblocking(False)
for _ in range(count):
    start()
say(listener.getsockname()[1])
while sys.stdin.readline():
    start()  # before the other one goes: nobody is refused
    pid = workers.pop(0)
    os.kill(pid, signal.SIGTERM if graceful else signal.SIGKILL)
    status = ended(pid)
    assert status == (0 if graceful else -signal.SIGKILL), status
    say("replaced")
for pid in workers:
    os.kill(pid, signal.SIGTERM)
ended_well(*workers)
"""
CALLING = """
port, graceful = int(sys.argv[1]), sys.argv[2] == "graceful"
(stop, done), (here, met) = os.pipe(), os.pipe()

def call():
    os.close(done)
    whole = broken = 0
    while not select.select([stop], [], [], 0)[0] or not whole:
        try:
            with connected(port) as sock:
                settle(sock)
                converse(sock, 10)
            whole += 1
        except (ConnectionError, AssertionError) as error:
            # The worker was killed, in the middle of an answer, too.
            assert not graceful and "wrong" not in str(error), repr(error)
            broken += 1
        os.write(met, b"!")
    with connected(port) as sock:  # nobody is killed any more
        settle(sock)

callers = [forked(call) for _ in range(8)]
for _ in range(len(callers)):
    os.read(here, 1)
say("calling")
def drain():
    while os.read(here, 1 << 16):
        pass
threading.Thread(target=drain, daemon=True).start()
told()
os.close(done)
ended_well(*callers)
say("all called")
"""


@pytest.mark.parametrize("end", ["graceful", "killed"])
def test_workers_are_replaced_while_clients_go_on(path: str, end: str) -> None:
    """Each connection of a worker that was let finish is answered to its end. Of one that was killed they break, and
    the next ones find another worker."""
    with running(PREFORK, path, end) as server, running(CALLING, path, server.line(), end) as calling:
        assert calling.line() == "calling"
        for _ in range(scaled(40)):
            server.tell()
            assert server.line() == "replaced"
        calling.tell()
        assert calling.line() == "all called"
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.wait() == 0
