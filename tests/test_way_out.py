"""The way out: a connection that moved and whose descriptor goes to somebody who reads the kernel's stream."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from pairs import KernelSocket, Pair, Task, eventually, make_pair, path_of, payload, read_exactly, read_to_eof

import fastsock


@pytest.fixture
def pair(request: pytest.FixtureRequest):
    with make_pair("ring") as made:
        yield made


def test_a_detached_descriptor_is_read_and_written_raw(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"before")
    assert far.recv(100) == b"before"
    raw = KernelSocket(fileno=near.detach())
    with raw:
        far.sendall(b"to the raw one")
        assert read_exactly(raw, 14) == b"to the raw one"
        raw.sendall(b"from the raw one")
        assert read_exactly(far, 16) == b"from the raw one"
        assert fastsock.path_of(far).path == "tcp"
        far.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    assert far.recv(1) == b""


def test_both_ends_detached(pair: Pair) -> None:
    near, far = pair
    for _ in range(100):
        near.sendall(b"x" * 100)
        assert read_exactly(far, 100) == b"x" * 100
    raw_near, raw_far = (KernelSocket(fileno=sock.detach()) for sock in pair)
    with raw_near, raw_far:
        raw_near.sendall(b"hello")
        assert read_exactly(raw_far, 5) == b"hello"
        raw_far.sendall(b"world")
        assert read_exactly(raw_near, 5) == b"world"


def test_a_peer_asleep_in_recv_follows(pair: Pair) -> None:
    near, far = pair
    waiting = Task(far.recv, 100).until_asleep()
    with KernelSocket(fileno=near.detach()) as raw:
        raw.sendall(b"after")
        assert waiting.result() == b"after"
        again = Task(far.recv, 100).until_asleep()
        raw.sendall(b"again")
        assert again.result() == b"again"


def test_exposed_descriptors_keep_no_doorbell_bytes(pair: Pair) -> None:
    near, far = pair
    near.fileno()
    far.fileno()
    for _ in range(50):
        far.sendall(b"ring")
        far.sendall(b"ring")
        assert read_exactly(near, 8) == b"ringring"
    with KernelSocket(fileno=near.detach()) as raw:
        raw.setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.recv(1)
        raw.setblocking(True)
        far.sendall(b"real")
        assert read_exactly(raw, 4) == b"real"


def bridges() -> set[int]:
    """Process ids of bridges that run now."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text() == "fastsock-bridge\n":
                    found.add(int(entry.name))
    return found


@pytest.mark.parametrize("size", [1, 12, 48, 49, 5_000, 100_000, 700_000])
def test_unread_bytes_are_sent_again(pair: Pair, size: int) -> None:
    near, far = pair
    before = bridges()
    data = payload(size)
    far.sendall(data)
    with KernelSocket(fileno=near.detach()) as raw:
        assert not bridges() - before, "the peer could take part"
        far.sendall(b"and on")
        assert read_exactly(raw, size + 6) == data + b"and on"
        raw.sendall(b"answer")
        assert read_exactly(far, 6) == b"answer"
        assert path_of(far) == "tcp"


def test_a_descriptor_read_in_part(pair: Pair) -> None:
    near, far = pair
    far.sendall(payload(20_000))
    assert read_exactly(near, 7_001) == payload(20_000)[:7_001]
    with KernelSocket(fileno=near.detach()) as raw:
        far.sendall(b"!")
        assert read_exactly(raw, 13_000) == payload(20_000)[7_001:] + b"!"


def test_unread_bytes_behind_doorbell_bytes(pair: Pair) -> None:
    near, far = pair
    near.fileno()
    for _ in range(5):
        far.sendall(b"ring")
    assert near.recv(2) == b"ri"
    with KernelSocket(fileno=near.detach()) as raw:
        far.sendall(b"!")
        assert read_exactly(raw, 19) == b"ng" + b"ring" * 4 + b"!"


def test_a_closed_peer_s_bytes_cross_a_bridge(pair: Pair) -> None:
    near, far = pair
    far.sendall(payload(300_000))
    far.close()
    with KernelSocket(fileno=near.detach()) as raw:
        assert read_to_eof(raw) == payload(300_000)
        assert raw.recv(1) == b""


def test_a_half_closed_peer_gets_its_answer_over_a_bridge(pair: Pair) -> None:
    near, far = pair
    far.sendall(payload(1_000))
    far.shutdown(socket.SHUT_WR)
    before = bridges()
    with KernelSocket(fileno=near.detach()) as raw:
        assert len(bridges() - before) == 1
        assert read_to_eof(raw) == payload(1_000)
        raw.sendall(payload(100_000, 1))
        assert read_exactly(far, 100_000) == payload(100_000, 1)
    assert far.recv(1) == b""
    far.close()
    eventually(lambda: bridges() - before, set())


def test_a_subprocess_reads_the_stream(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"a line before\n")
    assert far.recv(100) == b"a line before\n"
    fd = near.detach()
    child = subprocess.Popen(
        [sys.executable, "-c", "import os; os.write(1, os.read(0, 100).upper())"], stdin=fd, stdout=fd
    )
    os.close(fd)
    far.sendall(b"to the child")
    assert read_to_eof(far) == b"TO THE CHILD"
    assert child.wait(10) == 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    key = path.with_suffix(".key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(key), "-out", str(path)],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


def test_starttls_in_mid_stream(pair: Pair, certificate: Path) -> None:
    near, far = pair
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    client_side = ssl.create_default_context(cafile=str(certificate))
    near.sendall(b"STARTTLS\r\n")
    assert far.recv(100) == b"STARTTLS\r\n"
    far.sendall(b"220 go ahead\r\n")
    serving = Task(server_side.wrap_socket, far, True)
    assert near.recv(100) == b"220 go ahead\r\n"
    with client_side.wrap_socket(near, server_hostname="localhost") as client, serving.result() as server:
        client.sendall(b"secret")
        assert server.recv(100) == b"secret"
        server.sendall(b"x" * 200_000)
        assert read_exactly(client, 200_000) == b"x" * 200_000
