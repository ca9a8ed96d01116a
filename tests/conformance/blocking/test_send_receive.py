"""Every way to send and to receive carries every size whole, and nothing more."""

import socket

import pytest
from harness.pairs import Pair, Task, payload, read_exactly

SIZES = [0, 1, 47, 48, 49, 2047, 2048, 2049, 32767, 32768, 32769, 1 << 20, 8 << 20]


def send(sock: socket.socket, data: memoryview) -> None:
    while data:
        data = data[sock.send(data) :]


def sendall(sock: socket.socket, data: memoryview) -> None:
    assert sock.sendall(data) is None


def sendto(sock: socket.socket, data: memoryview) -> None:
    while data:
        data = data[sock.sendto(data, sock.getpeername()) :]


def sendmsg(sock: socket.socket, data: memoryview) -> None:
    while data:
        third = len(data) // 3
        data = data[sock.sendmsg([data[:third], b"", data[third:]]) :]


def recv(sock: socket.socket, room: memoryview) -> int:
    data = sock.recv(len(room))
    room[: len(data)] = data
    return len(data)


def recv_into(sock: socket.socket, room: memoryview) -> int:
    return sock.recv_into(room)


def recvfrom(sock: socket.socket, room: memoryview) -> int:
    data, address = sock.recvfrom(len(room))
    assert address is None
    room[: len(data)] = data
    return len(data)


def recvfrom_into(sock: socket.socket, room: memoryview) -> int:
    size, address = sock.recvfrom_into(room)
    assert address is None
    return size


def recvmsg(sock: socket.socket, room: memoryview) -> int:
    data, ancillary, flags, address = sock.recvmsg(len(room))
    assert (ancillary, flags, address) == ([], 0, None)
    room[: len(data)] = data
    return len(data)


def recvmsg_into(sock: socket.socket, room: memoryview) -> int:
    third = len(room) // 3
    size, ancillary, flags, address = sock.recvmsg_into([room[:third], bytearray(), room[third:]])
    assert (ancillary, flags, address) == ([], 0, None)
    return size


def receive_all(receive, sock: socket.socket, size: int) -> bytes:
    received = bytearray(size)
    got = 0
    while got < size:
        got += receive(sock, memoryview(received)[got:])
    return bytes(received)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sender", [send, sendall, sendto, sendmsg])
def test_whatever_is_sent_arrives(pair: Pair, sender, size: int) -> None:
    near, far = pair
    data = payload(size)
    reader = Task(read_exactly, far, size + 1)
    sender(near, memoryview(data))
    near.sendall(b"!")
    assert reader.result() == data + b"!"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("receiver", [recv, recv_into, recvfrom, recvfrom_into, recvmsg, recvmsg_into])
def test_whatever_arrives_is_received(pair: Pair, receiver, size: int) -> None:
    near, far = pair
    data = payload(size)
    writer = Task(far.sendall, data + b"!")
    assert receive_all(receiver, near, size) == data
    assert near.recv(2) == b"!"
    writer.result()


def test_sendmsg_gathers_and_recvmsg_into_scatters(pair: Pair) -> None:
    near, far = pair
    assert near.sendmsg([b"one", bytearray(b"two"), memoryview(b"three")], [], 0) == 11
    assert far.recv(100, socket.MSG_PEEK) == b"onetwothree"
    rooms = [bytearray(2), bytearray(5), bytearray(100)]
    assert far.recvmsg_into(rooms)[0] == 11
    assert [bytes(room[:5]) for room in rooms] == [b"on", b"etwot", b"hree\0"]


def test_sendmsg_of_nothing_sends_nothing(pair: Pair) -> None:
    near, far = pair
    assert near.send(b"") == near.sendto(b"", near.getpeername()) == 0
    assert near.sendmsg([]) == near.sendmsg([b"", b""]) == 0
    near.sendall(b"!")
    assert far.recv(10) == b"!"


def test_sendto_ignores_the_address(pair: Pair) -> None:
    near, far = pair
    assert near.sendto(b"elsewhere", ("127.0.0.2", 9)) == 9
    assert near.sendmsg([b", really"], [], 0, ("127.0.0.2", 9)) == 8
    assert read_exactly(far, 17) == b"elsewhere, really"


def test_receiving_zero_bytes_takes_nothing(pair: Pair) -> None:
    near, far = pair
    assert near.recv(0) == b""
    assert near.recv_into(bytearray()) == 0
    far.sendall(b"data")
    assert near.recv(4, socket.MSG_PEEK) == b"data"
    assert near.recv(0) == b""
    assert near.recvfrom(0) == (b"", None)
    assert near.recvmsg(0)[0] == b""
    assert near.recv(100) == b"data"


def test_a_short_receive_leaves_the_rest(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"0123456789")
    assert read_exactly(near, 3) == b"012"
    room = bytearray(b"......")
    assert near.recv_into(room, 2) == 2
    assert near.recv_into(memoryview(room)[4:]) == 2
    assert room == b"34..56"
    assert near.recv(100) == b"789"
