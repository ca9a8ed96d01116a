"""What a connection's path is a matter of in Python: the settings, the reasons, and what is told of it.

How the two ends find each other is the core's (core/rendezvous): whether a connection may look for its peer, and by
which name (policy.c), and the steps of the search (connector.c). The core has this module tell what has come of it.
Which end accepted and which connected does not matter, so a socket may have come about in any way. """

from __future__ import annotations

import os
import sys

from fastsock import config
from fastsock._native import control
from fastsock._native.registry import (
    REASONS as NUMBERS,
)
from fastsock._native.registry import (
    Endpoint,
    decide,
    install_policy,
    name_reasons,
    set_beginning,
    set_limits,
    set_poll_budget,
    set_terms,
)
from fastsock.observability import INFO, WARNING, detail, event

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from fastsock.statistics import Path

__all__ = ["Reason", "give_back_descriptors", "leave", "path_from", "report_violation", "start_thread_again"]


class Reason:
    """Why a connection is on kernel TCP: the texts. core/wire/reasons.h numbers them, by the same names."""

    FEW = "too few operations"
    SEEKING = "looking for the peer"
    EXCLUDED = "address or port excluded"
    REMOTE = "peer on another host"
    PEER = "peer does not use fastsock"
    UNTRUSTED = "peer belongs to another user"
    NAME = "name taken by another process"
    REFUSED = "peer refused"
    OPTION = "unsupported socket option"
    POLLED = "descriptor may be polled"
    DETACHED = "descriptor detached"
    BACK = "returned to kernel TCP, or nothing sent yet"
    OVERRIDDEN = "socket subclass overrides recv or send"
    HANDED_OUT = "descriptor handed out"
    FORKED = "shared with another process"
    MEMORY_CAP = "memory cap reached"
    RESOURCES = "out of memory or descriptors"
    ENDING = "ended before it could move"
    VIOLATION = "protocol violation"
    VERSION = "peer speaks another version of the protocol"
    UNPAID = "sessions too short to pay"


DISABLED = "disabled by settings"
FOREIGN = "not a fastsock socket"
"""What `path_of` says of a socket that has no endpoint."""

REASONS: tuple[str, ...] = tuple(getattr(Reason, name) for name in sorted(NUMBERS, key=NUMBERS.__getitem__))
"""By their numbers, from 1 on, which `fastsock ss` is told."""

_told_of_unknown: set[str] = set()


def _tell_of_unknown() -> None:
    """Variables that look like settings and are none are told once, here or by the command line."""
    if config.TOLD not in os.environ:
        for variable, nearest in config.unknown().items():
            if variable not in _told_of_unknown:
                _told_of_unknown.add(variable)
                event(WARNING, "fastsock.no_such_setting", variable=variable, nearest=nearest)


def _apply(settings: config.Settings) -> None:
    _tell_of_unknown()
    set_poll_budget(settings.poll_us)
    set_beginning(settings.enabled, settings.move_after, settings._meeting_ms)
    set_terms(
        max(settings.window, 2 if settings._combine_when_full else 1),  # (the last descriptor is left to a spare part)
        settings.chunk_size,
        settings.ack_threshold if settings._delayed_ack else 1,
        settings.combine_limit if settings.combine else 0,
        settings._combine_when_full,
        settings.memory_cap,
        config.SEEK_SECONDS,
        settings.trust == "any",
        _moves_polled(settings),
    )
    set_limits(*settings.limits())


def _moves_polled(settings: config.Settings) -> bool:
    """Whether a connection whose descriptor may be polled moves."""
    return settings.move_polled or not settings.move_after


# ---- what the core asks, through vi --------------------------------------------------------------------------

settings = config.active


# ---- what it tells -------------------------------------------------------------------------------------------


def moved(endpoint: Endpoint, name: str) -> None:
    """The connection has consented to the ring."""
    detail("fastsock.path", path="ring", fd=endpoint.fd, name=name)


def stays(endpoint: Endpoint) -> None:
    """The connection stays on kernel TCP."""
    detail("fastsock.path", path="tcp", fd=endpoint.fd, reason=endpoint.reason)


def failed(endpoint: Endpoint, error: OSError) -> None:
    """The connection could not move."""
    detail("fastsock.rendezvous_failed", fd=endpoint.fd, error=repr(error))


def no_thread(error: OSError) -> None:
    """The connection thread could not be started."""
    event(WARNING, "fastsock.no_connection_thread", error=repr(error))


def start_thread_again() -> bool:
    """Starts the connection thread if a fork has stopped it and is over. False if it has to be tried again."""
    try:
        control.start_again()
    except OSError as error:
        no_thread(error)
        return False
    return True


def fork_is_over() -> None:
    """Starts the connection thread again. From Python 3.12 on it starts later, with a call on a connection or a turn of
    a loop that has one: the interpreter warns of the threads that it finds after this."""
    if sys.version_info < (3, 12):
        start_thread_again()
    else:
        control.wake_loops()


# ---- what others ask -----------------------------------------------------------------------------------------


def give_back_descriptors(endpoints: list[Endpoint]) -> bool:
    """The program is out of descriptors: gives back those of ours that meetings have. Whether there were
    any."""
    gave = False
    for endpoint in endpoints:
        if endpoint.searching and not endpoint.attached:
            decide(endpoint, Reason.RESOURCES)
            gave = True
    return gave


def leave(endpoint: Endpoint) -> bool:
    """The way out: takes a connection back to the kernel, before somebody else reads and writes its descriptor. False,
    with an event that says so, where there are no resources for it."""
    if endpoint.attached or endpoint.undecided:
        decide(endpoint, Reason.DETACHED)
    if endpoint.leave():
        if endpoint.broken:
            report_violation(endpoint, endpoint.wrong)
        elif endpoint.bridge_process:
            event(INFO, "fastsock.bridge", fd=endpoint.fd, process=endpoint.bridge_process)
        return True
    event(WARNING, "fastsock.stays_on_ring", fd=endpoint.fd)
    return False


def report_violation(endpoint: Endpoint, what: str) -> None:
    """The ring of a connection is broken: `what` says how. The caller resets it."""
    if endpoint.own_fault:
        event(WARNING, "fastsock.fault", fd=endpoint.fd, fault=what)
    else:
        event(WARNING, "fastsock.violation", fd=endpoint.fd, violation=what)


def path_from(standing: tuple[bool, bool, bool, str]) -> Path:
    """The path of a connection whose endpoint stands so (`Endpoint.standing`): "ring" once a direction has moved."""
    from fastsock.statistics import Path

    sending, receiving, attached, reason = standing
    if not (sending or receiving):
        return Path("tcp", reason or (Reason.BACK if attached else Reason.SEEKING))
    return Path("ring", "both directions" if sending and receiving else "sending" if sending else "receiving")


name_reasons(("", *REASONS))
install_policy(sys.modules[__name__])
config.on_change(_apply)
