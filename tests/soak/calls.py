"""Single calls on a socket, drawn at random: all the ways in which a program can send and receive."""

from __future__ import annotations

import os
import socket
import tempfile

from tests.soak.stream import Talk

SENDS = (1, 3, 48, 49, 64, 700, 1500, 4096, 30000, 70000, 300000)
TAKES = (1, 7, 64, 1000, 65536, 262144)


def send_some(talk: Talk, sock: socket.socket) -> None:
    """Sends some of what may be sent, by one call or two. BlockingIOError if nothing can be sent now."""
    rng = talk.rng
    if talk.plan.urgent[talk.side] and not talk.urgent_sent and rng.random() < 0.3:
        sock.send(b"!", socket.MSG_OOB)
        talk.urgent_sent = True
        talk.moved_on()
    data = talk.next_out(rng.choice(SENDS))
    if not data:
        return
    draw = rng.random()
    timeout = sock.gettimeout()
    if timeout != 0 and draw < 0.4:
        sock.sendall(data)
        talk.did_send(len(data))
    elif draw < 0.55:
        half = len(data) // 2
        talk.did_send(sock.sendmsg([data[:half], data[half:]]))
    elif draw < 0.65 and timeout in (None, 0):
        talk.did_send(os.write(sock.fileno(), data))
    elif draw < 0.68:
        send_file(talk, sock, data)
    else:
        talk.did_send(sock.send(data))


def send_file(talk: Talk, sock: socket.socket, data: bytes) -> None:
    """By `sendfile` of the socket or of `os`."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        if sock.gettimeout() == 0:
            talk.did_send(os.sendfile(sock.fileno(), file.fileno(), 0, len(data)))
        else:
            talk.did_send(sock.sendfile(file, 0, len(data)))


def receive_some(talk: Talk, sock: socket.socket) -> None:
    """Receives and checks some bytes, or the end, by one call. BlockingIOError if there is nothing now."""
    rng = talk.rng
    length = min(rng.choice(TAKES), talk.most_in)
    draw = rng.random()
    if draw < 0.1:
        talk.check(sock.recv(length, socket.MSG_PEEK))
        data: bytes | bytearray | memoryview = sock.recv(length)
    elif draw < 0.4:
        buffer = bytearray(length)
        data = memoryview(buffer)[: sock.recv_into(buffer)]
    elif draw < 0.5 and sock.gettimeout() in (None, 0):
        data = os.read(sock.fileno(), length)
    elif draw < 0.6:
        pieces = [bytearray(length // 2), bytearray(length - length // 2)]
        count = sock.recvmsg_into(pieces)[0]
        data = (pieces[0] + pieces[1])[:count]
    elif draw < 0.65 and talk.due > 0 and sock.gettimeout() != 0 and not any(talk.plan.urgent.values()):
        data = sock.recv(min(length, talk.due), socket.MSG_WAITALL)
    elif draw < 0.7:
        data = sock.recvfrom(length)[0]
    else:
        data = sock.recv(length)
    if data:
        talk.took(data)
    else:
        talk.ended()


def finish(talk: Talk, sock: socket.socket) -> None:
    """The end of the stream, if all of it is sent: half of the connection is closed then."""
    if talk.sent_all:
        sock.shutdown(socket.SHUT_WR)
        talk.shut = True
        talk.moved_on()
