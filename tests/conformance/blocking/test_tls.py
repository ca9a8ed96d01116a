"""TLS on a connection: ssl and pyOpenSSL take the descriptor, at its start or in mid-stream, and may give it back."""

import functools
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.pairs import SECONDS, Pair, Task, make_pair, payload, read_exactly, read_to_eof

SIZE = 400_000


@pytest.fixture
def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def client_context(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
    with make_pair(kind) as pair:
        pair.near.settimeout(SECONDS)
        pair.far.settimeout(SECONDS)
        yield pair


def exercise(client: socket.socket, server: socket.socket) -> None:
    """Both ways, small and large, at once."""
    for turn in range(20):
        client.sendall(b"%d" % turn)
        assert server.recv(100) == b"%d" % turn
        server.sendall(b"%d!" % turn)
        assert client.recv(100) == b"%d!" % turn
    up = Task(client.sendall, payload(SIZE, 1))
    assert read_exactly(server, SIZE) == payload(SIZE, 1)
    up.result()
    down = Task(server.sendall, payload(SIZE, 2))
    assert read_exactly(client, SIZE) == payload(SIZE, 2)
    down.result()


def wrap(
    pair: Pair, client_context: ssl.SSLContext, server_context: ssl.SSLContext
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    serving = Task(server_context.wrap_socket, pair.far, True)
    client = client_context.wrap_socket(pair.near, server_hostname="localhost")
    return client, serving.result()


def test_from_the_start(pair: Pair, client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> None:
    client, server = wrap(pair, client_context, server_context)
    with client, server:
        exercise(client, server)
        assert client.getpeercert() is not None
        server.shutdown(socket.SHUT_WR)


def test_starttls_in_mid_stream(pair: Pair, client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> None:
    near, far = pair
    for _ in range(10):
        near.sendall(b"NOOP\r\n")
        assert far.recv(100) == b"NOOP\r\n"
        far.sendall(b"250 ok\r\n")
        assert near.recv(100) == b"250 ok\r\n"
    near.sendall(b"STARTTLS\r\n")
    assert far.recv(100) == b"STARTTLS\r\n"
    far.sendall(b"220 go ahead\r\n")
    serving = Task(server_context.wrap_socket, far, True)
    assert near.recv(100) == b"220 go ahead\r\n"
    with client_context.wrap_socket(near, server_hostname="localhost") as client, serving.result() as server:
        exercise(client, server)


def test_starttls_with_the_handshake_unread(
    pair: Pair, client_context: ssl.SSLContext, server_context: ssl.SSLContext
) -> None:
    """The client did not wait: its hello lies unread, perhaps in the ring, when the server wraps its socket."""
    near, far = pair
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    near.sendall(b"STARTTLS\r\n" + outgoing.read())
    assert read_exactly(far, 10) == b"STARTTLS\r\n"
    serving = Task(server_context.wrap_socket, far, True)
    while True:
        incoming.write(near.recv(65536))
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            pass
    client.write(b"secret")
    near.sendall(outgoing.read())
    with serving.result() as server:
        assert server.recv(100) == b"secret"


def test_back_to_plain_text(pair: Pair, client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> None:
    near, far = pair
    near.sendall(b"AUTH TLS\r\n")
    assert far.recv(100) == b"AUTH TLS\r\n"
    client, server = wrap(pair, client_context, server_context)
    with client, server:
        exercise(client, server)
        unwrapping = Task(server.unwrap)
        plain_client, plain_server = client.unwrap(), unwrapping.result()
        exercise(plain_client, plain_server)
        plain_client.shutdown(socket.SHUT_WR)
        assert plain_server.recv(1) == b""


def patiently(sock: ssl.SSLSocket, call: Callable[[], object]) -> object:
    """A call on a non-blocking socket until it is done, waiting for what it asks for."""
    while True:
        try:
            return call()
        except ssl.SSLWantReadError:
            assert select.select([sock], [], [], SECONDS)[0]
        except ssl.SSLWantWriteError:
            assert select.select([], [sock], [], SECONDS)[1]


def test_non_blocking(pair: Pair, client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> None:
    pair.near.sendall(b"before")
    assert pair.far.recv(100) == b"before"
    pair.near.setblocking(False)
    pair.far.setblocking(False)
    client = client_context.wrap_socket(pair.near, server_hostname="localhost", do_handshake_on_connect=False)
    server = server_context.wrap_socket(pair.far, server_side=True, do_handshake_on_connect=False)
    with client, server:
        with pytest.raises(ssl.SSLWantReadError):
            server.do_handshake()
        shaking = Task(patiently, server, server.do_handshake)
        patiently(client, client.do_handshake)
        shaking.result()

        def send() -> None:
            data = memoryview(payload(SIZE))
            while data:
                sent = patiently(server, functools.partial(server.send, data))
                assert isinstance(sent, int)
                data = data[sent:]

        with pytest.raises(ssl.SSLWantReadError):
            client.recv(1)
        sending = Task(send)
        received = bytearray()
        while len(received) < SIZE:
            chunk = patiently(client, lambda: client.recv(65536))
            assert isinstance(chunk, bytes)
            received += chunk
        sending.result()
        assert received == payload(SIZE)


# ---- pyOpenSSL ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unread", [False, True])
def test_pyopenssl(pair: Pair, certificate: Path, unread: bool) -> None:
    SSL = pytest.importorskip("OpenSSL.SSL")
    near, far = pair
    for sock in pair:
        sock.settimeout(None)
    for _ in range(10):
        near.sendall(b"STARTTLS\r\n")
        assert far.recv(100) == b"STARTTLS\r\n"
        far.sendall(b"go ahead\r\n")
        assert near.recv(100) == b"go ahead\r\n"
    if unread:
        far.sendall(b"banner\r\n")  # in plain text still
    server_context = SSL.Context(SSL.TLS_METHOD)
    server_context.use_certificate_file(str(certificate))
    server_context.use_privatekey_file(str(certificate))
    server = SSL.Connection(server_context, far)
    server.set_accept_state()
    shaking = Task(server.do_handshake)
    if unread:
        assert read_exactly(near, 8) == b"banner\r\n"
    client = SSL.Connection(SSL.Context(SSL.TLS_METHOD), near)
    client.set_connect_state()
    client.do_handshake()
    shaking.result()
    up = Task(client.sendall, payload(SIZE, 1))
    assert read_exactly(server, SIZE) == payload(SIZE, 1)
    up.result()
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    client.shutdown()
    with pytest.raises(SSL.ZeroReturnError):
        server.recv(1)
    # Plain text again, through the socket objects.
    server.shutdown()
    with pytest.raises(SSL.ZeroReturnError):
        client.recv(1)
    near.sendall(b"plain")
    assert read_exactly(far, 5) == b"plain"
    far.shutdown(socket.SHUT_WR)
    assert read_to_eof(near) == b""
