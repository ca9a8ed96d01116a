"""Streams between filters: buffers of a fixed size on a TCP connection, units of work, acknowledgements.

A frame is a header and, for a buffer, its bytes. Data flows one way. Where a producer chooses its consumer by demand, a
consumer acknowledges each buffer the other way when it starts to process it.
"""

from __future__ import annotations

import socket
import struct

HEADER = struct.Struct("=BxxxIII")  # kind, unit of work, number, length
BUFFER, END, QUERY, ACK = 1, 2, 3, 4
HOST = "127.0.0.1"


class Ended(Exception):
    """The other end has closed."""


class Stream:
    """One connection between two filters (or a filter and the client)."""

    def __init__(self, sock: socket.socket, block: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.unacknowledged = 0
        self._frame = bytearray(HEADER.size + block)
        self._head = memoryview(self._frame)[: HEADER.size]
        self.payload = memoryview(self._frame)[HEADER.size :]

    def send(self, kind: int, unit: int, number: int = 0, data: bytes | memoryview = b"") -> None:
        """Sends a frame. `data` may be this stream's own `payload`, or a part of it: then nothing is copied here."""
        length = len(data)
        HEADER.pack_into(self._frame, 0, kind, unit, number, length)
        if length and data is not self.payload:
            self.payload[:length] = data
        self.sock.sendall(memoryview(self._frame)[: HEADER.size + length])

    def receive(self) -> tuple[int, int, int, memoryview]:
        """The next frame: kind, unit of work, number, bytes, which stand until the next call. `Ended` at the end."""
        self._fill(self._head)
        kind, unit, number, length = HEADER.unpack_from(self._frame)
        data = self.payload[:length]
        if length:
            self._fill(data)
        return kind, unit, number, data

    def _fill(self, view: memoryview) -> None:
        got = self.sock.recv_into(view)
        while got < len(view):
            if not got:
                raise Ended
            more = self.sock.recv_into(view[got:])
            if not more:
                raise Ended
            got += more

    def acknowledge(self) -> None:
        self.sock.sendall(bytes((ACK,)))

    def take_acknowledgements(self) -> None:
        """Those that are there already; waits for none."""
        try:
            self.unacknowledged -= len(self.sock.recv(4096, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass

    def end(self) -> None:
        """No more frames will come from here. Acknowledgements are read to their end: what lies unread at a close would
        reset the connection."""
        self.sock.shutdown(socket.SHUT_WR)
        while self.sock.recv(4096):
            pass
        self.sock.close()


class Outputs:
    """A logical stream to all copies of the next filter: who gets a buffer is decided here."""

    def __init__(self, streams: list[Stream], schedule: str) -> None:
        self.streams, self.demand = streams, schedule == "demand"
        self._turn = 0

    def choose(self) -> Stream:
        """Round robin: the next. Demand driven: the one with the fewest buffers that it has not begun to process."""
        self._turn = (self._turn + 1) % len(self.streams)
        if not self.demand:
            return self.streams[self._turn]
        for stream in self.streams:
            stream.take_acknowledgements()
        waiting = self.streams[self._turn :] + self.streams[: self._turn]
        chosen = min(waiting, key=lambda stream: stream.unacknowledged)
        chosen.unacknowledged += 1
        return chosen

    def write(self, unit: int, number: int, data: bytes | memoryview) -> None:
        self.choose().send(BUFFER, unit, number, data)

    def end(self, unit: int, report: int, copy: int) -> None:
        """The marker behind the last buffer of a unit of work, to every copy. `report`: microseconds of computing."""
        for stream in self.streams:
            stream.send(END, unit, report, bytes((copy,)))


def listen() -> socket.socket:
    return socket.create_server((HOST, 0), backlog=64)


def connect(port: int, block: int) -> Stream:
    return Stream(socket.create_connection((HOST, port)), block)
