"""Processes that are stopped or killed at each step of setting up a connection, or while they hold something of it:
the others go on meanwhile, and afterwards."""

import pytest
from harness.pairs import SECONDS, eventually
from harness.scale import excess, may_trace, report_of, running, scaled, serving

needs_tracing = pytest.mark.skipif(not may_trace(), reason="this kernel lets no process trace its child")


pytestmark = pytest.mark.usefixtures("bounded")


BEFORE = """
def gated(function, *arguments):
    wait, gate = os.pipe()
    def run():
        os.close(gate)
        os.read(wait, 1)
        function(*arguments)
    return forked(run), gate

def client(port, below, rounds):
    with connected(port, below) as sock:
        converse(sock, rounds)
        os.write(moved, bytes([is_on_ring(sock)]))

def to_others(number):
    ask(others[number % len(others)])

here, moved = os.pipe()
"""

STEPPED_CLIENTS = (
    BEFORE
    + """
port, count, what, below = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], {"True": True, "False": False}[sys.argv[4]]
kills = what == "kill"
children = [gated(client, port, below, 12) for _ in range(count)]
others = [connected(port) for _ in range(10)]
for sock in others:
    settle(sock)
length = 0
for place, (pid, gate) in enumerate(children):
    def at_stop(number):
        global length
        if kills and place == 0:
            length = number
            return
        to_others(number)
        if kills and number == place * length // count:
            os.kill(pid, signal.SIGKILL)
        elif not kills and random.random() < 0.02:
            time.sleep(0.02)
    assert step(pid, gate, at_stop) in ((0, -signal.SIGKILL) if kills and place else (0,))
    for number in range(len(others)):
        to_others(number)
with connected(port, below) as sock:
    settle(sock)
for sock in others:
    sock.close()
os.set_blocking(here, False)
say(sum(os.read(here, count)))
told()
"""
)

STOPPED_SERVER = (
    BEFORE
    + """
count = int(sys.argv[1])
listener = listening()
port = listener.getsockname()[1]

def server():
    threads = [threading.Thread(target=answer_and_close, args=(listener.accept()[0],)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def clients():
    listener.close()
    children = [forked(client, port, number % 2 == 0, 12) for number in range(count)]
    ended_well(*children)
    os.write(well, b"!")
    told()  # who is traced is the only child that may end

def at_stop(number):
    time.sleep(random.choice([0] * 20 + [0.01]))

answered, well = os.pipe()
pid, gate = gated(server)
talking = forked(clients)
listener.close()
assert step(pid, gate, at_stop) == 0
assert os.read(answered, 1)
say(sum(os.read(here, count)))
os.kill(talking, signal.SIGKILL)
"""
)

KILLED_SERVERS = (
    BEFORE
    + """
count = int(sys.argv[1])

def caller(port):
    with contextlib.suppress(ConnectionError, AssertionError):
        client(port, None, 12)

def server(listener):
    answer_and_close(listener.accept()[0])

length = 0
for place in range(count):
    with listening() as listener:
        port = listener.getsockname()[1]
        pid, gate = gated(server, listener)
    def call():
        caller(port)
        os.write(well, b"!")
        signal.pause()
    answered, well = os.pipe()
    calling = forked(call)
    os.close(well)
    def at_stop(number):
        global length
        if place == 0:
            length = number
        elif number == place * length // count:
            os.kill(pid, signal.SIGKILL)
    assert step(pid, gate, at_stop) in (0, -signal.SIGKILL)
    assert os.read(answered, 1), place
    os.close(answered)
    os.kill(calling, signal.SIGKILL)
    ended(calling)
say("all told")
"""
)


@needs_tracing
@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize(("kind", "what"), [("threads", "stop"), ("threads", "kill"), ("asyncio", "kill")])
def test_clients_stopped_or_killed_at_each_step(path: str, kind: str, what: str, publishes: bool) -> None:
    """From the call of connect to the end of the connection. Each time that one stands still, others are answered by
    its server, and in the end it is. Nothing of the dead is left."""
    with serving(path, kind) as server:
        port, before = server.line(), report_of(server)
        with running(STEPPED_CLIENTS, path, port, scaled(16 if what == "kill" else 2), what, publishes) as clients:
            assert (int(clients.line(3 * SECONDS)) > 0) == (path == "fastsock")
            eventually(lambda: excess(before, report_of(server)), {})
            clients.tell()
            assert clients.wait() == 0


@needs_tracing
def test_a_server_stopped_at_each_step(path: str) -> None:
    with running(STOPPED_SERVER, path, scaled(4)) as program:
        moved = int(program.line(3 * SECONDS))
        assert program.wait() == 0
    assert (moved > 0) == (path == "fastsock")


@needs_tracing
def test_servers_killed_at_each_step(path: str) -> None:
    """Their clients hear of it."""
    with running(KILLED_SERVERS, path, scaled(16)) as program:
        assert program.line(3 * SECONDS) == "all told"
        assert program.wait() == 0
