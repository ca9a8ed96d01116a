"""Programs that block: in turn, with timeouts, with two threads, with four on one socket, through files."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable

from tests.soak.calls import finish, receive_some, send_some
from tests.soak.stream import Talk, Wrong
from tests.soak.watch import PATIENCE


def block(talk: Talk, sock: socket.socket) -> None:
    """One call after the other: sends what it may, then receives."""
    sock.settimeout(None)
    _in_turn(talk, sock)


def timeout(talk: Talk, sock: socket.socket) -> None:
    """The same with timeouts, which are never reached."""
    sock.settimeout(PATIENCE)
    _in_turn(talk, sock)


def _in_turn(talk: Talk, sock: socket.socket) -> None:
    while not talk.stage_over:
        if talk.allowed:
            send_some(talk, sock)
        elif talk.sent_all:
            finish(talk, sock)
        else:
            receive_some(talk, sock)


class _Gate:
    """Wakes senders when something was received, and keeps the first error of any thread."""

    def __init__(self, talk: Talk, sock: socket.socket) -> None:
        self.talk, self.sock = talk, sock
        self.changed = threading.Condition()
        self.error: BaseException | None = None

    def news(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            if self.error is None:
                self.error = error
            try:
                self.sock.shutdown(socket.SHUT_RDWR)  # wakes the other threads
            except OSError:
                pass
        finally:
            self.news()

    def send_all(self, send: Callable[[], None]) -> None:
        """Sends the whole stream by calls of `send`, and its end."""
        talk = self.talk
        while not talk.shut and self.error is None:
            with self.changed:
                self.changed.wait_for(lambda: talk.allowed or talk.sent_all or talk.shut or self.error or talk.eof, 1.0)
            if talk.allowed or talk.sent_all:
                send()
            elif talk.cut_short:
                raise ConnectionError("the peer's stream ended too early")

    def run(self, *bodies: Callable[[], None]) -> None:
        """Each body in a thread of its own, the first one here."""
        threads = [threading.Thread(target=self.guarded, args=(body,), daemon=True) for body in bodies[1:]]
        for thread in threads:
            thread.start()
        self.guarded(bodies[0])
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error


def _send_or_finish(talk: Talk, sock: socket.socket) -> None:
    if talk.allowed:
        send_some(talk, sock)
    else:
        finish(talk, sock)


def threads(talk: Talk, sock: socket.socket) -> None:
    """One thread receives, another one sends."""
    sock.settimeout(talk.rng.choice([None, PATIENCE]))
    gate = _Gate(talk, sock)

    def receive() -> None:
        while not talk.eof:
            receive_some(talk, sock)
            gate.news()

    gate.run(receive, lambda: gate.send_all(lambda: _send_or_finish(talk, sock)))


def four(talk: Talk, sock: socket.socket) -> None:
    """Two threads receive at once, and two take turns at sending."""
    sock.settimeout(None)
    gate = _Gate(talk, sock)
    lock, turn = threading.Lock(), threading.Lock()
    found: list[tuple[int, int]] = [(0, talk.got)]
    short: list[bytes] = []
    reading = [1, 2]

    def receive() -> None:
        while data := sock.recv(65536):
            at = talk.into.bytes.find(data)
            if at < 0:
                raise Wrong(f"stream {talk.into.key} has no such {len(data)} bytes: {data[:32]!r}")
            with lock:
                if len(data) < 8:
                    short.append(data)
                else:
                    found.append((at, len(data)))
                talk.got += len(data)
                talk.moved_on()
            gate.news()
        with lock:
            reading.pop()
            if not reading:  # both have noted all that they received
                talk.ended()
        gate.news()

    def send() -> None:
        with turn:
            _send_or_finish(talk, sock)

    gate.run(receive, receive, lambda: gate.send_all(send), lambda: gate.send_all(send))
    _check_tiling(talk, found, short)


def _check_tiling(talk: Talk, found: list[tuple[int, int]], short: list[bytes]) -> None:
    """What several threads received makes up the stream. (Pieces too short to be found in it fill the gaps.)"""
    at, gaps = 0, b""
    for start, length in sorted(found):
        if start < at:
            raise Wrong(f"stream {talk.into.key}: bytes from {start} to {at} came twice")
        gaps += talk.into.piece(at, start - at)
        at = start + length
    if talk.got == talk.total_in:
        gaps += talk.into.piece(at, talk.total_in - at)
        if Counter(gaps) != Counter(b"".join(short)):
            raise Wrong(f"stream {talk.into.key}: {len(gaps)} bytes in gaps, {sum(map(len, short))} in short pieces")


def makefile(talk: Talk, sock: socket.socket) -> None:
    """Reads and writes files made of the socket."""
    rng = talk.rng
    sock.settimeout(None)
    gate = _Gate(talk, sock)
    reader = sock.makefile("rb", buffering=rng.choice([0, 8192, 65536]))
    writer = sock.makefile("wb", buffering=rng.choice([0, 8192, 65536]))

    def receive() -> None:
        while not talk.eof:
            data = reader.read(max(1, min(rng.choice([1, 100, 5000, 200_000]), talk.due)))
            if data:
                talk.took(data)
            else:
                talk.ended()
            gate.news()

    def send() -> None:
        data = talk.next_out(rng.choice([1, 100, 5000, 200_000]))
        while data:
            count = writer.write(data)
            talk.did_send(count)
            data = data[count:]
        writer.flush()
        finish(talk, sock)

    with reader:
        gate.run(receive, lambda: gate.send_all(send))
        writer.close()
