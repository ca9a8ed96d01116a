"""The Python side of the front end at the C library's calls: hands it settings, puts it in place, and logs events."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
from types import SimpleNamespace

from fastsock import config
from fastsock._native import libc_front
from fastsock.observability import DEBUG, INFO, WARNING, event, log, wants_details

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any

    from fastsock.statistics import Path

__all__ = ["Reason", "install", "path_from", "serves"]


Reason = SimpleNamespace(**libc_front.REASONS)
"""Texts of the reasons why a connection is in the kernel, such as `Reason.FEW`. They are listed in
core/include/fastsock_reasons.h."""
DISABLED = "disabled by settings"
FOREIGN = "not a fastsock socket"
"""The reason that `path_of` gives for a socket that is not served."""

REASONS: tuple[str, ...] = tuple(libc_front.REASONS.values())
"""The texts in the order of their numbers, from 1 on. `fastsock ss` receives the numbers."""


# ---- settings ------------------------------------------------------------------------------------------------

_warned_of: set[str] = set()
patched = False
"""`patch()` is in effect: every socket is served that the process makes."""
_serves: bool | None = None  # fastsock is enabled, and its functions are in place; None: not known yet


def _warn_of_unknown() -> None:
    """Warns once of each unknown FASTSOCK_* variable, unless the command line did."""
    if config.TOLD not in os.environ:
        for variable, nearest in config.unknown().items():
            if variable not in _warned_of:
                _warned_of.add(variable)
                event(WARNING, "fastsock.no_such_setting", variable=variable, nearest=nearest)


def _apply(settings: config.Settings) -> None:
    global _serves
    _warn_of_unknown()
    _serves = None
    if libc_front.serves():
        libc_front.configure(settings.given)


def install(everything: bool) -> bool:
    """Puts the functions in place, for every socket of the process or for those of `fastsock.socket`. Returns false,
    and logs why, if that is not possible."""
    global patched, _serves
    why = libc_front.install(config.active().given, everything)
    _serves = why is None
    patched |= everything and _serves
    if why is not None:
        event(WARNING, "fastsock.declined", because=why)
    elif sys.version_info >= (3, 12):  # which warns of a fork while there are threads
        _keep_forks_quiet()
    return _serves


def uninstall() -> None:
    """Serves no new sockets, but those of `fastsock.socket`."""
    global patched, _serves
    patched, _serves = False, None
    libc_front.uninstall()
    for name, ours in _FORKS.items():
        if getattr(os, name) is ours:
            setattr(os, name, _beneath[name])


_FORKS = {"fork": libc_front.fork, "forkpty": libc_front.forkpty}
_beneath: dict[str, Any] = {}


def _keep_forks_quiet() -> None:
    for name, ours in _FORKS.items():
        if getattr(os, name) is not ours:
            _beneath[name] = getattr(os, name)  # other code may have wrapped it, as gevent does
            setattr(os, name, ours)
    libc_front.set_forks(_beneath["fork"], _beneath["forkpty"])


def serves() -> bool:
    """Returns true if connections of this process may move. Puts the functions in place at the first call."""
    global _serves
    if _serves is None:
        _serves = config.active().enabled and (patched or install(False))
    return _serves


def serves_unix() -> bool:
    """Returns true if stream sockets of AF_UNIX may move, too."""
    return serves() and config.active().unix_streams


config.on_change(_apply)


def path_from(standing: tuple[bool, bool, bool, str] | None) -> Path:
    """Returns the path for `libc_front.standing`: "ring" as soon as one direction has moved."""
    from fastsock.statistics import Path

    if standing is None:
        return Path("tcp", FOREIGN if config.active().enabled else DISABLED)
    sending, receiving, attached, reason = standing
    if not (sending or receiving):
        return Path("tcp", reason or (Reason.BACK if attached else Reason.SEEKING))
    return Path("ring", "both directions" if sending and receiving else "sending" if sending else "receiving")


# ---- events of connections -----------------------------------------------------------------------------------

LEVELS = {"fastsock.path": DEBUG, "fastsock.rendezvous_failed": DEBUG, "fastsock.bridge": INFO}
"""Of the others: WARNING."""

_start_thread = _thread.start_new_thread
_tellers: set[Any] = set()
"""The threads that may have taken an event which they have not logged yet."""
_at_exit = False


def _events_wait() -> None:
    """Called in the main thread, wherever the program is, as a signal handler is. To log there could wait for a lock
    that the interrupted code holds. So a thread does it, which ends when all is told; none if nobody listens."""
    global _at_exit
    if libc_front.events(wants_details()):
        if not _at_exit:
            _at_exit = True
            atexit.register(_tell_rest)
        try:
            _start_thread(_start_teller, ())
        except RuntimeError:
            pass  # no thread can be started: they are told at the exit


def _start_teller() -> None:
    """`threading` has locks too, so the main thread leaves its use to this one."""
    from threading import Thread

    try:
        Thread(target=_run_teller, name="fastsock-events", daemon=True).start()
    except RuntimeError:
        pass


def _run_teller() -> None:
    from threading import current_thread

    teller = current_thread()
    _tellers.add(teller)
    try:
        _tell_events()
    finally:
        _tellers.discard(teller)


def _tell_events() -> None:
    while (taken := libc_front.take_event()) is not None:
        what, values = taken
        level = LEVELS.get(what, WARNING)
        if level > DEBUG or wants_details():
            log(level, what, values)


def _tell_rest() -> None:
    """Logs what has happened so far. At the exit: the interpreter ends the threads wherever they are."""
    _tell_events()
    for teller in list(_tellers):  # one that is not here yet takes nothing that has happened so far
        teller.join(5)


libc_front.listen(_events_wait)
