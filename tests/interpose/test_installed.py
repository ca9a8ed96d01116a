"""The functions put in place of the C library's in a process that runs: which slots, when, and what programs see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import ROOT, ended

from fastsock import config, launch

SOURCES = ROOT / "tests/interpose/relocated"
COMPILER = os.environ.get("CC", "cc")
SETTINGS = config.text_of(config.Settings())


def compiled(folder: Path, source: str, *flags: str) -> Path:
    made = folder / Path(source).stem
    subprocess.run([COMPILER, str(SOURCES / source), *flags, "-ldl", "-o", str(made)], check=True, timeout=60)
    return made


ROUND = """installed well, handler 1
pointer ours, copied theirs
dlsym: program ours, libc ours, next theirs
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
    done = ended([program, launch.LIBRARY, plugin, SETTINGS])
    assert done.stdout == f"before theirs\n{2 * ROUND}a call -1\n"


def test_where_another_library_is_in_front_nothing_is_put_in_place(tmp_path: Path) -> None:
    program, plugin = compiled(tmp_path, "slots.c"), compiled(tmp_path, "plugin.c", "-shared", "-fPIC")
    front = tmp_path / "front.c"
    front.write_text("long recv(int fd, void *into, unsigned long room, int flags) { return -1; }\n")
    library = tmp_path / "front.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", str(front), "-o", str(library)], check=True, timeout=60)
    done = ended([program, launch.LIBRARY, plugin, SETTINGS], LD_PRELOAD=str(library))
    assert f"installed recv is also in {library}, handler 1\npointer neither" in done.stdout


PATCHED = """
import sys
import fastsock
late = {"_ssl", "select", "_socket"} - sys.modules.keys()
fastsock.patch(libc=True, **eval(sys.argv[1]))
import select, selectors, socket, ssl, threading
from fastsock._native import registry
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
print("unpatched", fastsock.is_patched(), registry.is_served_below())
polled(), encrypted()
fresh = pair()
print("fresh", *(fastsock.path_of(end).reason for end in fresh))
for end in (near, far, tls_near, tls_far, watch, *fresh):
    end.close()
print("closed", registry.is_served_below())
fastsock.patch()
print("patched", fastsock.is_patched(), socket.socket is fastsock.socket)
near, far = pair()
def plain():
    near.sendall(b"ping")
    assert far.recv(100) == b"ping"
    far.sendall(b"pong")
    assert near.recv(100) == b"pong"
print("plain", on_ring(near, far, plain))
fastsock.patch(libc=True)
print("declined", fastsock.is_patched())
"""


def test_patch_with_libc_serves_what_polls_and_what_is_in_c() -> None:
    certificate = ROOT / "bench/localhost.pem"
    done = ended([sys.executable, "-c", PATCHED, {"move_after": 8}, certificate], FASTSOCK_LOG="")
    assert done.stdout.splitlines() == [
        "polled True",
        "encrypted True",
        "unpatched False True",
        "fresh not a fastsock socket not a fastsock socket",
        "closed False",
        "patched True True",
        "plain True",
        "declined False",
    ]
