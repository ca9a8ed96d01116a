"""What programs do with a socket in the middle of a connection: hand it on, fork, turn to TLS, give up.

Each event takes the connection and its socket, and returns the socket to go on with: None if another process does.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from tests.soak import watch
from tests.soak.stream import Talk

LINGER_ZERO = struct.pack("ii", 1, 0)
open_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""All that this process has open: a forked child closes those of other connections."""


class GivesUp(Exception):
    """The program ends the connection in the middle, as planned."""


def adopt(talk: Talk, sock: socket.socket) -> socket.socket:
    """The number is taken out of its object and put into a new one."""
    timeout = sock.gettimeout()
    new = socket.socket(fileno=sock.detach())
    new.settimeout(timeout)
    return new


def dup(talk: Talk, sock: socket.socket) -> socket.socket:
    with sock:
        return sock.dup()


def fork(talk: Talk, sock: socket.socket) -> socket.socket | None:
    """A child goes on. The parent keeps the connection open for a moment."""
    pid = os.fork()
    if pid == 0:
        _in_child(talk)
        return sock
    watch.talks.discard(talk)
    time.sleep(talk.rng.choice([0, 0, 0.001, 0.05]))
    sock.close()
    _reap(pid)
    return None


def fork_off(talk: Talk, sock: socket.socket) -> socket.socket:
    """Parent and child go on: the child sends, the parent receives."""
    pid = os.fork()
    if pid == 0:
        talk.part = "out"
        _in_child(talk)
        return sock
    talk.part = "in"
    _reap(pid)
    return sock


def _in_child(talk: Talk) -> None:
    global _helper_lock
    _helper_lock = threading.Lock()  # another thread of the parent's may have held it
    watch.talks.clear()
    watch.talks.add(talk)
    watch.open_for_dumps()
    watch.start_watching()
    for sock in list(open_sockets):
        if sock is not talk.handle:
            with contextlib.suppress(OSError):
                sock.close()


def _reap(pid: int) -> None:
    def wait() -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status not in (0, -signal.SIGKILL):
            watch.say("died", child=pid, status=status)

    threading.Thread(target=wait, daemon=True).start()


# ---- SCM_RIGHTS to another process ----------------------------------------------------------------------------

_helper: socket.socket | None = None
_helper_lock = threading.Lock()


def _start_helper() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.soak.worker", "helper", str(theirs.fileno())]
    with theirs:
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    return ours


def let_helper_go() -> None:
    """The helper ends when it has carried its connections to their ends."""
    with _helper_lock:
        if _helper is not None:
            _helper.close()


def pass_on(talk: Talk, sock: socket.socket) -> None:
    """Another process gets the descriptor and goes on."""
    global _helper
    note = [talk.plan.key, [talk.plan.kinds["client"], talk.plan.kinds["server"]], talk.side]
    place = {**talk.place(), "stage": talk.stage + 1}
    message = json.dumps([*note, place]).encode()
    with _helper_lock:
        try:
            if _helper is None:
                _helper = _start_helper()
            socket.send_fds(_helper, [message], [sock.fileno()])
        except (BrokenPipeError, ConnectionResetError):  # the helper was killed
            if _helper is not None:
                _helper.close()
                _helper = None  # should there be no descriptor for another one
            _helper = _start_helper()
            socket.send_fds(_helper, [message], [sock.fileno()])
    watch.talks.discard(talk)
    time.sleep(talk.rng.choice([0, 0, 0.001, 0.05]))
    sock.close()


def receive_passed(channel: socket.socket) -> tuple[list[object], int] | None:
    """In the helper: the next connection that was passed on, and its descriptor; None if there are no more."""
    room = socket.CMSG_SPACE(array.array("i").itemsize)
    data, ancillary, _, _ = channel.recvmsg(4096, room)
    if not data:
        return None
    numbers = array.array("i")
    for _level, _kind, payload in ancillary:
        numbers.frombytes(payload)
    if not numbers:
        watch.say("trouble", detail="a descriptor was lost on its way (no descriptors left)")
        return receive_passed(channel)
    return json.loads(data), numbers[0]


# ---- TLS ----------------------------------------------------------------------------------------------------


def certificate(directory: Path) -> Path:
    """A certificate that signs itself, and its key, in one file; made for each run."""
    path = directory / "localhost.pem"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    both = ["-keyout", str(path), "-out", str(path.with_suffix(".crt"))]
    subprocess.run([*request.split(), *both], check=True, capture_output=True, timeout=30)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


def tls_context(side: str) -> ssl.SSLContext:
    path = str(Path(watch.OUT, "localhost.pem"))
    if side == "server":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(path)
    context.check_hostname = False
    return context


def secure(talk: Talk, sock: socket.socket) -> socket.socket:
    """TLS begins: a wrapped socket."""
    sock.settimeout(watch.PATIENCE)
    wrapped = tls_context(talk.side).wrap_socket(sock, server_side=talk.side == "server")
    talk.secured = True
    talk.moved_on()
    return wrapped


def secured(talk: Talk, sock: socket.socket) -> None:
    """The program above TLS: in turns, by counts; the end of a stream is not told."""
    while not talk.over:
        data = talk.next_out(talk.rng.choice([1, 700, 20_000, 300_000]))
        if data:
            sock.sendall(data)
            talk.did_send(len(data))
            continue
        data = sock.recv(talk.rng.choice([1, 700, 20_000, 300_000]))
        if not data:
            return
        talk.took(data)
    if talk.side == "server":
        with contextlib.suppress(OSError):  # (ssl.SSLError is one: the client may have gone without a word)
            sock.recv(1)


# ---- giving up -----------------------------------------------------------------------------------------------


def give_up(talk: Talk, sock: socket.socket) -> None:
    manner = (talk.now.event or "").removeprefix("abort-")
    if manner == "linger0":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
    elif manner == "shutdown":
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    sock.close()
    raise GivesUp(manner)


EVENTS: dict[str, Callable[[Talk, socket.socket], socket.socket | None]] = {
    "adopt": adopt, "dup": dup, "fork": fork, "fork-off": fork_off, "pass": pass_on, "tls": secure,
    "abort-linger0": give_up, "abort-close": give_up, "abort-shutdown": give_up,
}  # fmt: skip
