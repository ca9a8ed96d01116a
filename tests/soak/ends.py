"""One end of a connection whose program uses a socket: its stages, one after the other."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from tests.soak import blocking, handing, selecting, watch
from tests.soak.stream import Talk

PROGRAMS: dict[str, Callable[[Talk, socket.socket], None]] = {
    "block": blocking.block, "timeout": blocking.timeout, "threads": blocking.threads, "four": blocking.four,
    "makefile": blocking.makefile, "select": selecting.by_select, "poll": selecting.by_poll,
    "epoll": selecting.by_epoll, "epoll-edge": selecting.by_edge, "epoll-oneshot": selecting.by_oneshot,
    "secured": handing.secured,
}  # fmt: skip

_at_home = os.getpid()


def run(talk: Talk, sock: socket.socket) -> None:
    """Carries a connection to its end, or to where another process goes on, and reports how it ended."""
    watch.talks.add(talk)
    try:
        _run_stages(talk, sock)
    finally:
        talk.handle = None
        if os.getpid() != _at_home:
            watch.close_dumps()
            os._exit(0)


def _run_stages(talk: Talk, sock: socket.socket) -> None:
    try:
        while True:
            handing.open_sockets.add(sock)
            talk.handle = sock
            talk.abandon = lambda sock=sock: _abandon(sock)  # type: ignore[misc]
            PROGRAMS[talk.now.program](talk, sock)
            watch.note_path(talk)
            if talk.over or not talk.at_event:  # or the stream ended too early
                break
            following = handing.EVENTS[talk.now.event or ""](talk, sock)
            if following is None:
                return
            sock = following
            talk.next_stage()
            talk.moved_on()
    except handing.GivesUp:
        watch.report(talk, "gave up")
    except BaseException as error:
        watch.note_path(talk)
        watch.report(talk, *watch.outcome(talk, error))
    else:
        watch.report(talk, *watch.outcome(talk, None))
    with contextlib.suppress(OSError):
        sock.close()


def _abandon(sock: socket.socket) -> None:
    def shut() -> None:  # in a thread of its own: on a connection that hangs this may hang too
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=shut, daemon=True).start()
