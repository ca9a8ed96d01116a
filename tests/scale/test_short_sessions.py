"""Connections that are set up while a process has few descriptors or little memory left, from any step on: each of them
works, on kernel TCP if need be."""

import os

import pytest
from harness.pairs import SECONDS
from harness.scale import report_of, running, serving

pytestmark = pytest.mark.usefixtures("bounded")


# ---- descriptors

NO_PROC = """
libc = ctypes.CDLL(None, use_errno=True)
if (libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None)
        or libc.mount(b"none", b"/proc", b"tmpfs", 0, None)):
    raise OSError(ctypes.get_errno(), "no /proc could be hidden")
"""
PROC = pytest.mark.parametrize(
    "proc",
    ["", pytest.param(NO_PROC, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root hides /proc"))],
    ids=["proc", "no-proc"],
)
LOWER = """
import resource
LIMITS = resource.getrlimit(resource.RLIMIT_NOFILE)
STEPS = [(step, free) for step in range(10) for free in (0, 1, 2, 3, 4, 5, 7, 10, 20)]

def lower(free):
    '''Leaves so many descriptors to the process.'''
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, LIMITS[1]))

def restore():
    resource.setrlimit(resource.RLIMIT_NOFILE, LIMITS)
"""
SHORT_CLIENT = (
    LOWER
    + """
kept, moved = [], 0
for step, free in STEPS:
    sock = connected(int(sys.argv[1]), sys.argv[2] == "True")
    converse(sock, step)
    lower(free)
    converse(sock, 15)
    restore()
    moved += is_on_ring(sock)
    kept.append(sock)
    for sock in random.sample(kept, min(3, len(kept))):
        converse(sock, 1)
    if len(kept) > 20:
        kept.pop(random.randrange(len(kept))).close()
for sock in kept:
    sock.close()
say(moved)
"""
)


@PROC
@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_client_whose_limit_is_lowered(path: str, kind: str, publishes: bool, proc: str) -> None:
    with serving(path, kind) as server, running(proc + SHORT_CLIENT, path, server.line(), publishes) as client:
        moved = int(client.line(3 * SECONDS))
        assert client.wait() == 0
        assert report_of(server)["threads"] > 0, "the server lives"
    assert (moved > 0) == (path == "fastsock")


# ---- memory

MEMORY = """
import resource
STEPS = [(step, spare) for step in range(0, 10, 3) for spare in (0, 300, 1000, 2100, 5000, 20_000, 80_000)]

def limit_memory(spare):
    '''So many KiB of address space more than now.'''
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (spare << 10), resource.RLIM_INFINITY))
"""
SMALL_CLIENTS = (
    MEMORY
    + """
def client(step, spare):
    sock = connected(int(sys.argv[1]), sys.argv[2] == "True")
    converse(sock, step)
    limit_memory(spare)
    for _ in range(30):
        ask(sock)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.write(moved, bytes([is_on_ring(sock)]))
    ask(sock, 100_000, 100_000)
    sock.close()

here, moved = os.pipe()
for step, spare in STEPS:
    ended_well(forked(client, step, spare))
say(sum(os.read(here, len(STEPS))))
"""
)


@pytest.mark.parametrize("publishes", [True, False])
def test_clients_without_memory(path: str, publishes: bool) -> None:
    with serving(path) as server, running(SMALL_CLIENTS, path, server.line(), publishes) as clients:
        moved = int(clients.line(3 * SECONDS))
        assert clients.wait() == 0
    assert (moved > 0) == (path == "fastsock")
