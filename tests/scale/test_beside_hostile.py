"""A server of a crowd, one of whose clients writes what it likes into the shared memory."""

import contextlib
import os
import time

import pytest
from harness.pairs import SECONDS
from harness.processes import running as running_with_pairs
from harness.scale import report_of, running, scaled, serving

pytestmark = pytest.mark.usefixtures("bounded")


OTHERS = """
port, processes = int(sys.argv[1]), 5
(here, ready), (gate, opened) = os.pipe(), os.pipe()

def talk():
    os.close(opened)
    socks = [connected(port) for _ in range(10)]
    for sock in socks:
        settle(sock)
    os.write(ready, b"!")
    while not select.select([gate], [], [], 0)[0]:
        for sock in socks:
            converse(sock, 3)
    os.write(ready, b"!")
    signal.sigwait([signal.SIGTERM])
    for sock in socks:
        converse(sock, 3)
        sock.close()

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
pids = [forked(talk) for _ in range(processes)]
for word in ("talking", "resting"):
    for _ in pids:
        assert os.read(here, 1)
    say(word)
    told()
    if word == "talking":
        os.close(opened)
for pid in pids:
    os.kill(pid, signal.SIGTERM)
ended_well(*pids)
say("all answered")
"""

HOSTILE = """
import contextlib, random
from harness.hostile_peer import *
from harness.scale import answer_to, request
port, publishes, seconds = int(sys.argv[1]), sys.argv[2] == "True", float(sys.argv[3])
ASKED = next(word for word in map(str.encode, map(str, range(10_000))) if answer_to(word, 1) == b"v")

class Answers:
    '''The victim, in another process: what it says is the answer to a request.'''

    def __init__(self, stranger):
        self.stranger = stranger

    def sendall(self, data):
        assert data == b"v"
        self.stranger.send(request(ASKED, 1))

    def close(self):
        pass

class Stranger(Peer):
    def _connection(self, publishes):
        tcp = KernelSocket()
        tcp.settimeout(SECONDS)
        bind_beside(tcp, port, below=publishes)
        tcp.connect(("127.0.0.1", port))
        return tcp, Answers(self)

    def chat(self):
        self.victim.sendall(b"v")
        assert self.tcp.recv(1) == b"v"

    def writes(self):
        '''A word of the region: any value, or one that may be meant.'''
        width = random.choice((4, 8))
        words = self.region._words[width]
        # Most of a region is arena, so half of them go to the front, where the words are that mean something.
        front = min(len(words), self.region.descriptor(1, -1) // width + 8)
        place = random.randrange(front if random.random() < 0.5 else len(words))
        words[place] = random.choice((random.getrandbits(8 * width), random.getrandbits(6), words[place] + 1,
                                      words[place] ^ 1 << random.randrange(8 * width))) & (1 << 8 * width) - 1

    def is_over(self):
        if not select.select([self.tcp], [], [], 0)[0]:
            return False
        try:
            return self.tcp.recv(1 << 16) == b""
        except ConnectionError:
            return True

met, over, kept, limit = 0, 0, [], time.monotonic() + seconds
while time.monotonic() < limit or not met:
    stranger = Stranger(publishes, window=32, chunk=32768 if random.random() < 0.5 else 1024)
    try:
        stranger.meet()
    except ValueError:  # it is to use a region again, and does not answer
        stranger.close()
        continue
    met += 1
    if random.random() < 0.8:
        stranger.consent()
    if random.random() < 0.8:
        stranger.move()
    written = 0
    while written < 3000 and not (written % 50 == 0 and stranger.is_over()):
        if random.random() < 0.1:
            stranger.post(os.urandom(random.randrange(1, 1000)), ack=random.getrandbits(random.choice((3, 32))))
        stranger.writes()
        written += 1
        if random.random() < 0.05:
            stranger.wake()
            time.sleep(0.0002)
        if random.random() < 0.01:
            with contextlib.suppress(OSError):
                stranger.ask()
            with contextlib.suppress(OSError):
                stranger.tcp.send(os.urandom(5))
    if len(kept) < 20 and not stranger.is_over():
        kept.append(stranger)  # as it stands, while the victim has nothing to do
    else:
        over += stranger.is_over()
        stranger.close()
assert over  # the victim has told some of them so
say(met)
told()
"""


def processor_time(pid: int) -> float:
    """Seconds that a process has run."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("kind", "publishes"), [("threads", True), ("threads", False), ("asyncio", True), ("uvloop", False)]
)
def test_a_client_that_writes_anything(kind: str, publishes: bool) -> None:
    """Fifty others are answered, before and after. The server neither ends, nor is it busy with what was written."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving("fastsock", kind))
        port = server.line()
        others = stack.enter_context(running(OTHERS, "fastsock", port))
        assert others.line() == "talking"
        hostile = stack.enter_context(running_with_pairs(HOSTILE, port, publishes, scaled(1)))
        assert int(hostile.line(3 * SECONDS)) > 0
        others.tell()
        assert others.line() == "resting"
        before = processor_time(server.pid)
        time.sleep(0.5)
        assert processor_time(server.pid) - before < 0.25
        others.tell()
        assert others.line() == "all answered"
        hostile.tell()
        assert hostile.wait() == 0
        assert report_of(server)["threads"] > 0, "the server lives"
