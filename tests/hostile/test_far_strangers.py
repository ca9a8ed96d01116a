"""A process in a third network namespace that sees the folder of `rendezvous_dir`, as the same user: it may take every
name there. It gets no descriptor, and the two that it stands between stay on kernel TCP."""

from pathlib import Path

import pytest
from harness.hosts import Container
from harness.processes import Program

THIEF = """
import array, glob, socket, struct, sys, threading, os, select, time
FOLDER, WHAT, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
MESSAGE = struct.Struct("<QII16s")
MAGIC = int.from_bytes(b"fs-prve1", "little")
def say(*words): print(*words, flush=True)
def named():
    while not (found := glob.glob(FOLDER + "/tcp-*")): time.sleep(0.001)
    return found[0]
def receive(sock):
    data, came, _, _ = sock.recvmsg(100, socket.CMSG_SPACE(4 * 253))
    fds = array.array("i")
    for _, _, with_it in came: fds.frombytes(with_it[: len(with_it) // 4 * 4])
    return data, list(fds)
def listen(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(path); made.listen(8); os.chmod(path, 0o666)
    return made
def connect(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(path)
    return made
path = named()
os.rename(path, FOLDER + "/real")
if WHAT != "hello":
    own = listen(path)
say("has the name")
seen = stolen = answers = 0
def hear(data, fds):
    global seen, stolen, answers
    seen += 1
    stolen += len(fds)
    answers += len(data) == 32 and not MESSAGE.unpack(data)[2]
def tell(): say("messages", int(seen > 0), "descriptors", stolen, "answers", answers)
if WHAT == "hello":
    # A seeker with a hello like any other's, and a TCP connection of its own.
    far = connect(FOLDER + "/real")
    tcp = socket.create_server(("127.0.0.1", 0))
    memfd = os.memfd_create("x")
    hello = struct.pack("<8sIIQ16s", b"fastsock", 8, 0, 4096, bytes(16))
    socket.send_fds(far, [hello], [memfd, tcp.fileno(), tcp.fileno()])
    seen = 1
    try: hear(*receive(far))
    except OSError: pass  # refused, with the hello unread
    tell()
elif WHAT == "relay":
    near, _ = own.accept()
    far = connect(FOLDER + "/real")
    until = time.monotonic() + 3
    ends = {near: far, far: near}
    while ends and time.monotonic() < until:
        for one in select.select(list(ends), [], [], 0.1)[0]:
            data, fds = receive(one)
            if not data:
                ends.clear()
                break
            hear(data, fds)
            ends[one].send(data)
    tell()
else:
    near, _ = own.accept()
    if PORT: near.send(MESSAGE.pack(MAGIC, 8, socket.htons(PORT), bytes(16)))
    near.settimeout(3)
    try:
        while True:
            data, fds = receive(near)
            if not data: break
            hear(data, fds)
    except TimeoutError: pass
    tell()
"""

SERVER = """
import fastsock, socket, sys, threading
fastsock.patch()
mirror = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mirror.bind((sys.argv[1], 7777))
def reflect():
    while True:
        data, whence = mirror.recvfrom(1000)
        mirror.sendto(data, whence)
threading.Thread(target=reflect, daemon=True).start()
l = socket.create_server((sys.argv[1], 7000))
print("listens", flush=True)
conn, _ = l.accept()
while data := conn.recv(100): conn.sendall(data)
print(fastsock.path_of(conn).reason, flush=True)
"""

CLIENT = """
import fastsock, socket, sys, time
fastsock.patch()
conn = socket.create_connection((sys.argv[1], 7000))
conn.sendall(b"x"); conn.recv(1)
print("begins", flush=True)
sys.stdin.readline()
limit = time.monotonic() + 8
while time.monotonic() < limit:
    conn.sendall(b"y")
    assert conn.recv(1) == b"y"
    if fastsock.path_of(conn).reason not in ("looking for the peer", "too few operations"): break
print(fastsock.path_of(conn).reason, flush=True)
conn.close()
"""


@pytest.mark.parametrize(
    ("what", "port", "client_stays"),
    [
        ("take", 0, "peer's address not proven"),
        ("reflect", 7777, "peer's address not proven"),
        ("relay", 0, "peer's address not proven"),
        ("hello", 0, "peer not found in the rendezvous folder"),
    ],
)
def test_a_third_namespace_gets_nothing(
    three: list[Container], folder: Path, what: str, port: int, client_stays: str
) -> None:
    setting = {"FASTSOCK_RENDEZVOUS_DIR": str(folder), "FASTSOCK__PATIENCE_MS": "1500"}
    address = three[0].address
    with (
        Program(THIEF, folder, what, port, prelude="", within=three[2].within) as thief,
        Program(SERVER, address, prelude="", within=three[0].within, **setting) as server,
    ):
        assert server.line() == "listens"
        later = {**setting, "FASTSOCK_MOVE_AFTER": "3"}
        with Program(CLIENT, address, prelude="", within=three[1].within, **later) as client:
            assert client.line() == "begins"
            assert thief.line() == "has the name"
            client.tell()
            assert thief.line() == "messages 1 descriptors 0 answers 0"
            assert client.line() == client_stays
            assert server.line() in ("looking for the peer", "peer's address not proven", client_stays)


def test_the_thief_would_get_what_it_asks_for(three: list[Container], folder: Path) -> None:
    """In the server's own namespace it is the peer's neighbour, and what is proven is the namespace: `trust` has to
    keep it out there. So the test above would see a descriptor."""
    setting = {"FASTSOCK_RENDEZVOUS_DIR": str(folder)}
    address = three[0].address
    with (
        Program(NEIGHBOUR, folder, address, prelude="", within=three[0].within) as neighbour,
        Program(SERVER, address, prelude="", within=three[0].within, **setting) as server,
    ):
        assert server.line() == "listens"
        with Program(CLIENT, address, prelude="", within=three[1].within, FASTSOCK_MOVE_AFTER="3", **setting) as client:
            assert client.line() == "begins"
            assert neighbour.line() == "has the name"
            client.tell()
            assert neighbour.line() == "hello with 3 descriptors"


NEIGHBOUR = (
    THIEF.partition("path = named()")[0].replace(
        "FOLDER, WHAT, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])", "FOLDER, HERE = sys.argv[1:]"
    )
    + """
path = named()
os.rename(path, FOLDER + "/real")
own = listen(path)
say("has the name")
near, _ = own.accept()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((HERE, 0))
DATAGRAM = struct.Struct("<QIIQ16s")
near.send(MESSAGE.pack(MAGIC, 8, socket.htons(udp.getsockname()[1]), bytes(16)))
port = socket.ntohs(MESSAGE.unpack(receive(near)[0])[2])
data, whence = udp.recvfrom(100)
_, _, role, space, nonce = DATAGRAM.unpack(data)
udp.sendto(DATAGRAM.pack(MAGIC, 8, 1 - role, space, b"n" * 16), (whence[0], port))
near.send(MESSAGE.pack(MAGIC, 8, 0, nonce))
while True:
    data, fds = receive(near)
    if len(data) == 40: break
say("hello with", len(fds), "descriptors")
"""
)
