"""One end of a connection: its socket, and the calls that threads of its process have in progress on it.

Everything but those calls returns at once, so that one thread can drive many ends. An end may live in another process:
`Remote` passes each call on. Every byte is compared with the stream it belongs to.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from harness.pairs import (
    ON_UNIX_STREAMS,
    SECONDS,
    KernelSocket,
    described,
    leave,
    names_of,
    path_of,
    payload,
    poll_mask,
    reset,
    sleep_of,
    standing,
    until,
)

STREAMS = {name: payload(1 << 16, seed) * 256 for seed, name in enumerate(("near", "far"))}
"""What each end sends: more than any test sends in all."""

LIMIT = 1 << 17
"""Bytes for SO_RCVBUF and SO_SNDBUF: some segments of the loopback interface. With less, timers decide."""


def name_of(error: OSError) -> str:
    return "timeout" if error.errno is None else errno.errorcode[error.errno]


class Call(threading.Thread):
    """A call of one end in a thread; `outcome` tells how it ended."""

    def __init__(self, end: End, name: str) -> None:
        super().__init__(daemon=True)
        self.outcome: str | None = None
        self._end, self._sock = end, end.sock
        self._act = getattr(self, name)
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._act()
        except OSError as error:
            self.outcome = name_of(error)
        except BaseException as error:
            self.outcome = repr(error)

    def recv(self) -> str:
        return self._end.note(self._sock.recv(1 << 16)) or "eof"

    def peek(self) -> str:
        data = self._sock.recv(1 << 16, socket.MSG_PEEK)
        end = self._end
        right = data == end.inn[end.received : end.received + len(data)]
        return ("data" if right else "WRONG bytes") if data else "eof"

    def waitall(self) -> str:
        """More than lies there, or is sent to it: it has taken some, and waits for the rest."""
        return self._end.note(self._sock.recv(1000, socket.MSG_WAITALL)) or "eof"

    def sendall(self) -> str:
        end = self._end
        data = memoryview(end.out)[end.sent : end.sent + end.sendall_size]
        self._sock.sendall(data)
        end.sent += len(data)
        return "done"

    def poll(self) -> str:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return "|".join(names_of(mask) for _, mask in poll.poll(3000 * SECONDS)) or "timeout"

    def state(self) -> str:
        """How it ended, or "blocked"; "runs" if it does neither for a while. (Who closes another connection wakes this
        one for a moment, and on a loaded machine that moment may be now.)"""
        limit = time.monotonic() + SECONDS / 2
        while self.is_alive():
            try:
                if sleep_of(self.native_id or 0):
                    return "blocked"
            except OSError:
                self.join()  # it ends at this moment
            if time.monotonic() > limit:
                return "runs"
            time.sleep(0.001)
        return self.outcome or "died"


class End:
    """One end, in this process."""

    def __init__(self, name: str, of_fastsock: bool, limited: bool, sendall_size: int) -> None:
        self.name = name
        self.out, self.inn = STREAMS[name], STREAMS["far" if name == "near" else "near"]
        self.sendall_size = sendall_size
        self.sent = self.received = 0
        self.wrong = ""
        self.started: dict[str, Call] = {}
        self.successor: Remote | None = None
        self._class = importlib.import_module("fastsock").socket if of_fastsock else KernelSocket
        self.sock: socket.socket = self._class(socket.AF_UNIX if ON_UNIX_STREAMS else socket.AF_INET)
        if limited:  # the kernel's buffers grow to megabytes, which takes long to fill, a thousand times
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self.sock.setsockopt(socket.SOL_SOCKET, option, LIMIT)
            # Nagle's algorithm would leave it to a timer when what is sent last arrives.
            if not ON_UNIX_STREAMS:
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # ---- making the connection

    def listen(self) -> Any:
        self.sock.bind("" if ON_UNIX_STREAMS else ("127.0.0.1", 0))
        self.sock.listen(1)
        return self.sock.getsockname()

    def connect(self, address: Any) -> None:
        self.sock.connect(address)

    def accept(self) -> None:
        listener, self.sock = self.sock, self.sock.accept()[0]
        listener.close()

    def meets(self) -> bool:
        """An operation that takes a step towards the ring; whether both ends are there. Moves no direction."""
        with contextlib.suppress(BlockingIOError):
            self.sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        return bool(described(self.sock, "peer_consents"))

    def moved(self) -> tuple[bool, bool]:
        """Whether its directions have moved to the ring: (out, in)."""
        return (standing(self.sock) or (False, False))[:2]

    def path(self) -> str:
        return path_of(self.sock)

    # ---- calls in progress

    def start(self, name: str, timeout: float | None) -> None:
        self.sock.settimeout(timeout)
        self.started[name] = Call(self, name)

    def forget(self, name: str) -> None:
        del self.started[name]

    def timeout(self) -> float | None:
        return self.sock.gettimeout()

    def calls(self) -> dict[str, str]:
        return {name: call.state() for name, call in self.started.items()}

    def stable(self) -> dict[str, Any]:
        """What its threads sleep in, or how their calls ended; None for one that runs."""
        state: dict[str, Any] = {}
        for name, call in self.started.items():
            try:
                state[name] = sleep_of(call.native_id or 0) if call.is_alive() else "over"
            except OSError:
                state[name] = None  # it ends at this moment
        return state

    # ---- what never waits

    def note(self, data: bytes) -> str:
        """Checks and counts received bytes; "" if there are none."""
        if not data:
            return ""
        if data != self.inn[self.received : self.received + len(data)] and not self.wrong:
            self.wrong = f"WRONG bytes behind {self.received}: found at {self.inn.find(data[:32])}"
        self.received += len(data)
        return self.wrong or "data"

    def never_wait(self) -> None:
        """With a timeout, Python waits in spite of MSG_DONTWAIT. A call in progress keeps the timeout it began with."""
        if self.sock.gettimeout():
            self.sock.settimeout(None)

    def put(self, size: int) -> str:
        """Sends up to so many bytes, as many as there is room for: "ok" or the error."""
        if self.successor:
            return self.pass_on("put", size)
        left = size
        try:
            self.never_wait()
            while left > 0:
                done = self.sock.send(
                    memoryview(self.out)[self.sent : self.sent + min(left, 1 << 16)], socket.MSG_DONTWAIT
                )
                self.sent += done
                left -= done
        except OSError as error:
            return name_of(error)
        return "ok"

    def drain(self) -> tuple[int, str]:
        """Receives what is there: how many bytes, and what stands behind them ("EAGAIN", "eof" or an error)."""
        if self.successor:
            return self.pass_on("drain")
        before = self.received
        try:
            self.never_wait()
            while data := self.sock.recv(1 << 18, socket.MSG_DONTWAIT):
                self.note(data)
            what = "eof"
        except OSError as error:
            what = name_of(error)
        return self.received - before, self.wrong or what

    def has_bytes(self) -> bool:
        """Whether a receive would return bytes at once. Takes none."""
        self.never_wait()
        try:
            return bool(self.sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def counts(self) -> tuple[int, int]:
        """Bytes (sent, received) so far, those of a `sendall` in progress left out."""
        return self.sent, self.received

    def pass_on(self, name: str, *arguments: Any) -> Any:
        """The same of the process that goes on, which must know what calls in this one have sent and received."""
        assert self.successor
        self.successor.set_counts(self.sent, self.received)
        result = getattr(self.successor, name)(*arguments)
        self.sent, self.received = self.successor.counts()
        return result

    def complaint(self) -> str:
        """Of wrong bytes, if there were any."""
        return self.wrong

    def set_sendall_size(self, size: int) -> None:
        self.sendall_size = size

    def set_counts(self, sent: int, received: int) -> None:
        self.sent, self.received = sent, received

    def poll(self) -> str:
        return self.successor.poll() if self.successor else names_of(poll_mask(self.sock))

    def act(self, what: str) -> str:
        """The event `what` at this end: "ok" or the error."""
        if self.successor:
            return self.successor.act(what)
        try:
            getattr(self, what)()
        except OSError as error:
            return name_of(error)
        return "ok"

    def shut_wr(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def shut_rd(self) -> None:
        self.sock.shutdown(socket.SHUT_RD)

    def shut_rdwr(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        reset(self.sock)

    def leave(self) -> None:
        leave(self.sock)

    def child_exits(self) -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def hold(self) -> int:
        """The process id of a forked child that inherits the socket and does nothing."""
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(12 * SECONDS)  # whoever should end it may have died
            while True:
                signal.pause()
        return pid

    def child_goes_on(self) -> None:
        """A child takes the socket over, and this process closes it, whatever calls are in progress here."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self.started.clear()
            serve(theirs, self)
        theirs.close()
        self.successor = Remote(ours, pid)
        self.successor.counts()  # the child runs
        self.sock.close()

    def describe(self) -> str:
        """Its path and where its threads are, for a failure."""
        frames = sys._current_frames()
        places = [
            f"{name} is {call.state()}:\n{''.join(traceback.format_stack(frames[call.ident]))}"
            for name, call in self.started.items()
            if call.ident in frames
        ]
        return "\n".join([f"{self.name}: {standing(self.sock)}, sent {self.sent}, received {self.received}", *places])

    def over(self) -> None:
        """The combination is done: nothing of it stays behind."""
        if self.successor:
            self.successor.over()
        self.sock.close()


class Remote:
    """An end in another process."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control, self._pid = control, pid
        control.settimeout(2 * SECONDS)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            write_message(self._control, (name, arguments))
            return read_message(self._control)

        return call

    def killed(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def act(self, what: str) -> str:
        if what == "killed":
            self.killed()
            return "ok"
        return self.__getattr__("act")(what)

    def over(self) -> None:
        """Ends the process, killed or not."""
        self._control.close()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> None:
        os.waitpid(self._pid, 0)  # (when this returns, the kernel has closed its descriptors)
        self._pid = 0


def remote_end(*arguments: Any) -> Remote:
    """An `End` in a forked child, made there. This process must hold no connection yet."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        serve(theirs, End(*arguments))
    theirs.close()
    return Remote(ours, pid)


def end_holder(pid: int) -> None:
    """Kills what `End.hold` has made, maybe in a process that is dead by now. Its descriptors are closed afterwards."""
    os.kill(pid, signal.SIGKILL)
    stat = Path(f"/proc/{pid}/stat")

    def ended() -> bool:
        try:
            return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(ended, "the end of a holder")
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def serve(control: socket.socket, end: End) -> None:
    """What the process of a remote end does; it ends when nobody asks any more."""
    status = 1
    try:
        control.settimeout(6 * SECONDS)
        while message := read_message(control):
            name, arguments = message
            write_message(control, getattr(end, name)(*arguments))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def write_message(control: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    control.sendall(struct.pack("I", len(data)) + data)


def read_message(control: socket.socket) -> Any:
    """The next message; None at the end of the stream."""
    head = control.recv(4, socket.MSG_WAITALL)
    return pickle.loads(control.recv(struct.unpack("I", head)[0], socket.MSG_WAITALL)) if head else None
