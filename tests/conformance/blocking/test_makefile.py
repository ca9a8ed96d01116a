"""Files made from a socket: buffered, unbuffered and text, and how they keep the socket open."""

import errno
import socket

import pytest
from harness.pairs import Pair, Task, payload, raises_errno, read_exactly


def test_a_binary_reader(pair: Pair) -> None:
    near, far = pair
    data = payload(200_000)
    with near.makefile("rb") as file:
        writer = Task(far.sendall, b"first line\nsecond line\n" + data + b"no newline")
        assert file.readline() == b"first line\n"
        assert file.readline() == b"second line\n"
        assert file.read(len(data)) == data
        writer.result()
        far.shutdown(socket.SHUT_WR)
        assert file.readline() == b"no newline"
        assert file.read() == b""


def test_a_binary_writer(pair: Pair) -> None:
    near, far = pair
    data = payload(500_000)
    reader = Task(read_exactly, far, len(data) + 6)
    with near.makefile("wb") as file:
        file.write(b"head; ")
        file.write(data)
    assert reader.result() == b"head; " + data


def test_a_buffered_writer_waits_for_flush(pair: Pair) -> None:
    near, far = pair
    with near.makefile("wb") as file:
        file.write(b"buffered")
        with raises_errno(errno.EAGAIN):
            far.recv(100, socket.MSG_DONTWAIT)
        file.flush()
        assert far.recv(100) == b"buffered"


def test_an_unbuffered_file_reads_no_further_than_asked(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"header\nbody")
    with near.makefile("rb", buffering=0) as file:
        assert file.readline() == b"header\n"
        assert near.recv(100) == b"body"
    with near.makefile("wb", buffering=0) as file:
        assert file.write(b"at once") == 7
        assert far.recv(100) == b"at once"


def test_text(pair: Pair) -> None:
    near, far = pair
    with near.makefile("rw", encoding="utf-8", newline="\n") as file:
        file.write("schön\n日本\n")
        file.flush()
        assert far.recv(100).decode() == "schön\n日本\n"
        far.sendall("grüß\ngott\nx".encode())
        far.shutdown(socket.SHUT_WR)
        assert list(file) == ["grüß\n", "gott\n", "x"]


def test_a_file_keeps_the_socket_open(pair: Pair) -> None:
    near, far = pair
    reader, writer = near.makefile("rb"), near.makefile("wb")
    near.close()
    assert near.fileno() != -1
    writer.write(b"still open")
    writer.close()
    assert far.recv(100) == b"still open"
    with raises_errno(errno.EAGAIN):
        far.recv(100, socket.MSG_DONTWAIT)
    far.sendall(b"and readable\n")
    assert reader.readline() == b"and readable\n"
    reader.close()
    assert near.fileno() == -1
    assert far.recv(100) == b""


def test_a_buffered_file_on_a_nonblocking_socket(pair: Pair) -> None:
    near, far = pair
    near.setblocking(False)
    with near.makefile("rb", buffering=0) as file:
        assert file.read(10) is None
        far.sendall(b"there")
        assert file.read(10) == b"there"


def test_a_file_that_timed_out_reads_no_more(pair: Pair) -> None:
    near, far = pair
    near.settimeout(0.02)
    with near.makefile("rb") as file:
        with pytest.raises(TimeoutError, match=r"^timed out$"):
            file.read(10)
        far.sendall(b"late")
        with pytest.raises(OSError, match="cannot read from timed out object"):
            file.read(10)
