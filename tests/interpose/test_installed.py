"""The functions put in place of the C library's in a process that runs: which slots, when, and what programs see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import ROOT, ended

from fastsock import launch

SOURCES = ROOT / "tests/interpose/relocated"
COMPILER = os.environ.get("CC", "cc")


def compiled(folder: Path, source: str, *flags: str) -> Path:
    made = folder / Path(source).stem
    subprocess.run(
        [COMPILER, str(SOURCES / source), *flags, "-pthread", "-ldl", "-o", str(made)], check=True, timeout=60
    )
    return made


ROUND = """installed well, handler 1
pointer ours, copied theirs
dlsym: program ours, libc ours, next ours
dlvsym: libc ours
plugin ours
filled again ours
uninstalled theirs, plugin theirs, handler 1
"""


@pytest.mark.parametrize(
    "flags",
    [("-fPIE", "-pie", "-Wl,-z,now"), ("-fPIE", "-pie", "-Wl,-z,lazy"), ("-fPIE", "-pie", "-fno-plt")],
    ids=["bound at the start", "bound at the first call", "without a linkage table"],
)
def test_each_slot_is_rewritten_and_put_back(flags: tuple[str, ...], tmp_path: Path) -> None:
    program, plugin = (
        compiled(tmp_path, "slots.c", *flags),
        compiled(tmp_path, "plugin.c", "-shared", "-fPIC", *flags[2:]),
    )
    done = ended([program, launch.LIBRARY, plugin])
    assert done.stdout == f"before theirs\n{2 * ROUND}a call -1\n"


def test_where_another_library_is_in_front_nothing_is_put_in_place(tmp_path: Path) -> None:
    program, plugin = compiled(tmp_path, "slots.c"), compiled(tmp_path, "plugin.c", "-shared", "-fPIC")
    front = tmp_path / "front.c"
    front.write_text("long recv(int fd, void *into, unsigned long room, int flags) { return -1; }\n")
    library = tmp_path / "front.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", str(front), "-o", str(library)], check=True, timeout=60)
    done = ended([program, launch.LIBRARY, plugin], LD_PRELOAD=str(library))
    assert f"installed recv is also in {library}, handler 1\npointer neither" in done.stdout


BETWEEN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
static int calls;
ssize_t recv(int fd, void *into, size_t room, int flags) {
    ssize_t (*next)(int, void *, size_t, int) = (ssize_t (*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    return calls++, next(fd, into, room, flags);
}
int open(const char *path, int flags, int mode) {
    return ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}
__attribute__((destructor)) static void end(void) { write(1, calls ? "called\\n" : "passed by\\n", calls ? 7 : 10); }
"""

CHAINED = """
import os, socket
with socket.create_server(("127.0.0.1", 0)) as server:
    near, far = socket.create_connection(server.getsockname()), server.accept()[0]
for _ in range(20):
    near.sendall(b"x"), far.recv(1), far.sendall(b"y"), near.recv(1)
os.close(os.open("/dev/null", os.O_RDONLY))
"""


@pytest.mark.parametrize("first", [True, False], ids=["before it", "after it"])
def test_another_preloaded_library_calls_the_next_function_and_never_itself(first: bool, tmp_path: Path) -> None:
    (tmp_path / "between.c").write_text(BETWEEN)
    library = tmp_path / "between.so"
    words = [COMPILER, "-shared", "-fPIC", "-w", str(tmp_path / "between.c"), "-ldl", "-o", str(library)]
    subprocess.run(words, check=True, timeout=60)
    chain = ":".join([launch.LIBRARY, str(library)] if first else [str(library), launch.LIBRARY])
    done = ended([sys.executable, "-c", CHAINED], LD_PRELOAD=chain)
    assert (done.stdout, done.stderr) == ("called\n", "")


PATCHED = """
import sys
import fastsock
late = {"_ssl", "select", "_socket"} - sys.modules.keys()
fastsock.patch(**eval(sys.argv[1]))
import select, selectors, socket, ssl, threading
from fastsock._native import libc_front
assert fastsock.is_patched() and type(socket.socket.recv).__name__ == "method_descriptor"

def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]

def on_ring(near, far, turn):
    for _ in range(100000):
        turn()
        if fastsock.path_of(near).path == fastsock.path_of(far).path == "ring":
            return True
    return fastsock.path_of(near)

near, far = pair()
watch = selectors.DefaultSelector()
watch.register(far, selectors.EVENT_READ)
def polled():
    near.sendall(b"ping")
    assert [key.fileobj for key, _ in watch.select(30)] == [far]
    assert far.recv(100) == b"ping"
    far.sendall(b"pong")
    assert near.recv(100) == b"pong"
print("polled", on_ring(near, far, polled))

server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.load_cert_chain(*sys.argv[2:])
client = ssl.create_default_context(cafile=sys.argv[2])
client.check_hostname = False
raw_near, raw_far = pair()
threads = [threading.Thread(target=lambda: globals().update(tls_far=server.wrap_socket(raw_far, server_side=True)))]
threads[0].start()
tls_near = client.wrap_socket(raw_near)
threads[0].join()
def encrypted():
    tls_near.sendall(b"ping")
    assert tls_far.recv(100) == b"ping"
    tls_far.sendall(b"pong")
    assert tls_near.recv(100) == b"pong"
print("encrypted", on_ring(tls_near, tls_far, encrypted))

fastsock.unpatch()
print("unpatched", fastsock.is_patched(), libc_front.serves())
polled(), encrypted()
fresh = pair()
print("fresh", *(fastsock.path_of(end).reason for end in fresh))
for end in (near, far, tls_near, tls_far, watch, *fresh):
    end.close()
print("closed", libc_front.serves())
fastsock.patch()
print("patched", fastsock.is_patched())
near, far = pair()
def plain():
    near.sendall(b"ping")
    assert far.recv(100) == b"ping"
    far.sendall(b"pong")
    assert near.recv(100) == b"pong"
print("plain", on_ring(near, far, plain))
"""


def test_patch_serves_what_polls_and_what_is_in_c() -> None:
    certificate = ROOT / "bench/localhost.pem"
    done = ended([sys.executable, "-c", PATCHED, {"move_after": 8}, certificate], FASTSOCK_LOG="")
    assert done.stdout.splitlines() == [
        "polled True",
        "encrypted True",
        "unpatched False True",
        "fresh not a fastsock socket not a fastsock socket",
        "closed False",
        "patched True",
        "plain True",
    ]


LOOPS = """
import asyncio, sys
import fastsock
fastsock.patch(move_after=8)
if sys.argv[1] == "uvloop":
    import uvloop

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)

class Client(Echo):
    def data_received(self, data):
        if fastsock.path_of(self.transport).path == "ring":
            self.transport.write_eof()
        else:
            self.transport.write(data)
    def connection_lost(self, error):
        ended.set_result(error)

async def main():
    global ended
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(Client, *server.sockets[0].getsockname())
    transport.write(b"x")
    print(await ended)
    server.close()

with asyncio.Runner(loop_factory=getattr(sys.modules[sys.argv[1]], "new_event_loop")) as runner:
    runner.run(main())
stats = fastsock.stats()
print(stats.connections_ring, stats.messages_sent > 0)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.Runner")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["preloaded", "installed"])
def test_transports_of_loops_drive_the_connections_that_the_library_has_opened(loop: str, way: str) -> None:
    run = (sys.executable, "-m", "fastsock", "run", "--libc") if way == "preloaded" else ()
    done = ended([*run, sys.executable, "-c", LOOPS, loop, way])
    assert (done.stdout, done.stderr) == ("None\n2 True\n", "")


FORKING = """
import multiprocessing, os, pty, socket, subprocess, sys
import fastsock
make = {"patched": socket.socket, "claimed": fastsock.socket}[sys.argv[1]]
if sys.argv[1] == "patched":
    fastsock.patch()
def child():
    pass
def ends(fork):
    made = fork()
    process = made[0] if isinstance(made, tuple) else made
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
if __name__ == "__main__":
    with make() as listener, make() as near:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:
            while fastsock.path_of(near).path != "ring":
                near.sendall(b"a byte")
                far.sendall(far.recv(6))
                near.recv(6)
            for fork in os.fork, os.forkpty, pty.fork:
                ends(fork)
                print(len(os.listdir("/proc/self/task")))
            for way in "fork", "forkserver", "spawn":
                process = multiprocessing.get_context(way).Process(target=child)
                process.start()
                process.join()
                print(len(os.listdir("/proc/self/task")))
            subprocess.run(["true"], preexec_fn=child, check=True)
            print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("sockets", ["patched", "claimed"])
def test_a_fork_is_not_warned_of_the_thread_that_stops_for_it(sockets: str, tmp_path: Path) -> None:
    """Python warns of forks beside threads from 3.12 on. Afterwards the thread is there again."""
    (tmp_path / "forking.py").write_text(FORKING)
    done = ended([sys.executable, "-W", "always", tmp_path / "forking.py", sockets])
    assert (done.stdout.split(), done.stderr) == (["2"] * 7, "")
