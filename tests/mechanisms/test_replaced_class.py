"""What a program puts in the place of `socket.socket`, a class or a function, makes its sockets too: the stdlib's
calls look the name up. And sockets that no __init__ of ours has made."""

import _socket
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from harness.pairs import read_exactly

import fastsock


@pytest.fixture(params=["plain", "patched"], autouse=True)
def put_back(request: pytest.FixtureRequest) -> Iterator[None]:
    with fastsock.configure(move_after=0, _meeting_ms=20):
        if request.param == "patched":
            fastsock.patch()
        try:
            yield
        finally:
            fastsock.unpatch()


def converse(one: socket.socket, other: socket.socket) -> None:
    with one, other:
        for _ in range(30):
            for sender, receiver in ((one, other), (other, one)):
                sender.sendall(b"said")
                assert read_exactly(receiver, 4) == b"said"


def test_a_derived_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tagged(socket.socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.tag = True

    before = socket.socket()
    monkeypatch.setattr(socket, "socket", Tagged)
    with socket.create_server(("127.0.0.1", 0)) as listener, before as older:
        older.bind(("127.0.0.1", 0))
        older.listen()
        for one in (listener, older):
            one.settimeout(20)
            near = socket.create_connection(one.getsockname())
            far, address = one.accept()
            assert [type(sock) for sock in (near, far)] == [Tagged, Tagged]
            assert far.tag
            assert address == near.getsockname()
            assert far.gettimeout() is None
            converse(near, far)


def test_a_function_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> Any:
        raise RuntimeError("no sockets here")

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        monkeypatch.setattr(socket, "socket", refuse)
        with pytest.raises(RuntimeError, match="no sockets here"):
            listener.accept()


def test_a_class_that_calls_another_init() -> None:
    class Direct(socket.socket):
        def __init__(self) -> None:
            _socket.socket.__init__(self)
            self._io_refs = 0
            self._closed = False

    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = Direct()
        near.connect(listener.getsockname())
        converse(near, listener.accept()[0])


def test_a_socket_that_was_never_made() -> None:
    sock = socket.socket.__new__(socket.socket)
    assert sock.detach() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        sock.recv(1)
