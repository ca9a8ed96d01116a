"""Streams between filters: buffers of a fixed size on a TCP connection, units of work, acknowledgements.

A frame is a header and, for a buffer, its bytes. Data flows one way. Where a producer chooses its consumer by demand, a
consumer acknowledges each buffer the other way when it starts to process it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

HEADER = struct.Struct("=BxxxIII")  # kind, unit of work, number, length
ASKED = struct.Struct("=III")  # the bytes of a query: size of a block, how many blocks, how far apart their numbers
BUFFER, END, QUERY, ACK = 1, 2, 3, 4
HOST = "127.0.0.1"
AHEAD = 2  # buffers that a consumer may have and not have begun to process, where producers choose by demand


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


class Outputs:
    """A logical stream to all copies of the next filter: who gets a buffer is decided here."""

    def __init__(self, streams: list[Stream], schedule: str) -> None:
        self.streams = streams
        self._turn = 0
        self._acknowledged = threading.Condition()
        self._threads = []
        if schedule == "demand":
            take = self._take_acknowledgements
            self._threads = [threading.Thread(target=take, args=(stream,), daemon=True) for stream in streams]
            for thread in self._threads:
                thread.start()

    def choose(self) -> Stream:
        """Round robin: the next. Demand driven: the one with the fewest buffers that it has not begun to process, once
        there is one with fewer than AHEAD. Without that bound a fast producer would deal out everything at once."""
        self._turn = (self._turn + 1) % len(self.streams)
        waiting = self.streams[self._turn :] + self.streams[: self._turn]
        if not self._threads:
            return waiting[0]
        with self._acknowledged:
            self._acknowledged.wait_for(lambda: any(stream.unacknowledged < AHEAD for stream in waiting))
            chosen = min(waiting, key=lambda stream: stream.unacknowledged)
            chosen.unacknowledged += 1
        return chosen

    def _take_acknowledgements(self, stream: Stream) -> None:
        with contextlib.suppress(ConnectionError):
            while data := stream.sock.recv(4096):
                with self._acknowledged:
                    stream.unacknowledged -= len(data)
                    self._acknowledged.notify()
        with self._acknowledged:  # to a consumer that is gone the next buffer fails, and nobody waits for it
            stream.unacknowledged = 0
            self._acknowledged.notify()

    def write(self, unit: int, number: int, data: bytes | memoryview) -> None:
        self.choose().send(BUFFER, unit, number, data)

    def end(self, unit: int, report: int, copy: int) -> None:
        """The marker behind the last buffer of a unit of work, to every copy. `report`: microseconds of computing."""
        for stream in self.streams:
            stream.send(END, unit, report, bytes((copy,)))

    def close(self) -> None:
        """No more frames will come from here. What comes back is read to its end: a close with unread bytes would
        reset the connection."""
        for stream in self.streams:
            stream.sock.shutdown(socket.SHUT_WR)
        for thread in self._threads:
            thread.join()
        for stream in self.streams:
            while stream.sock.recv(4096):
                pass
            stream.sock.close()


def listen() -> socket.socket:
    return socket.create_server((HOST, 0), backlog=64)


def connect(port: int, block: int) -> Stream:
    return Stream(socket.create_connection((HOST, port)), block)
