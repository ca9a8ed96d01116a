"""The Python side of the path policy: passes settings to the core, and logs events.

The two ends find each other in the core (core/rendezvous): eligibility.c decides if a connection may look for its
peer, and under which name; connector.c takes the steps. The core reports the result to this module. The search does
not depend on which end accepted, so it works for sockets from any source."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from fastsock import config
from fastsock._native import control
from fastsock._native.registry import (
    REASONS as TEXTS,
)
from fastsock._native.registry import (
    Endpoint,
    decide,
    install_policy,
    is_served_below,
    set_beginning,
    set_limits,
    set_poll_budget,
    set_terms,
    set_trust,
)
from fastsock.observability import INFO, WARNING, detail, event

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from fastsock.statistics import Path

__all__ = ["Reason", "leave", "path_from", "report_violation", "start_thread_again"]


Reason = SimpleNamespace(**TEXTS)
"""Texts of the reasons why a connection is on kernel TCP, such as `Reason.FEW`. They are listed in
core/include/fastsock_types.h."""
DISABLED = "disabled by settings"
FOREIGN = "not a fastsock socket"
"""The reason that `path_of` gives for a socket without an endpoint."""

REASONS: tuple[str, ...] = tuple(TEXTS.values())
"""The texts in the order of their numbers, from 1 on. `fastsock ss` receives the numbers."""

_warned_of: set[str] = set()


def _warn_of_unknown() -> None:
    """Warns once of each unknown FASTSOCK_* variable, unless the command line did."""
    if config.TOLD not in os.environ:
        for variable, nearest in config.unknown().items():
            if variable not in _warned_of:
                _warned_of.add(variable)
                event(WARNING, "fastsock.no_such_setting", variable=variable, nearest=nearest)


def _apply(settings: config.Settings) -> None:
    _warn_of_unknown()
    set_beginning(settings.enabled, settings.move_after, settings._meeting_ms)
    if is_served_below():  # with the settings that `fastsock run` or `patch()` has handed down
        return
    set_poll_budget(settings.poll_us)
    set_terms(
        max(settings.window, 2 if settings._combine_when_full else 1),  # the overflow buffer needs the last descriptor
        settings.chunk_size,
        settings.ack_threshold if settings._delayed_ack else 1,
        settings.combine_limit if settings.combine else 0,
        settings._combine_when_full,
        settings.memory_cap,
        config.SEEK_SECONDS,
        _moves_polled(settings),
    )
    set_trust(*settings.trust.parts())
    set_limits(*settings.limits())


def _moves_polled(settings: config.Settings) -> bool:
    """Returns true if connections move even though their descriptor may be polled."""
    return settings.move_polled or not settings.move_after


# ---- called by the core, through registry --------------------------------------------------------------------

settings = config.active


def moved(endpoint: Endpoint, name: str) -> None:
    """Called when this end has agreed to move the connection."""
    detail("fastsock.path", path="ring", fd=endpoint.fd, name=name)


def stays(endpoint: Endpoint) -> None:
    """Called when the connection stays on kernel TCP."""
    detail("fastsock.path", path="tcp", fd=endpoint.fd, reason=endpoint.reason)


def failed(endpoint: Endpoint, error: OSError) -> None:
    """Called when a move failed."""
    detail("fastsock.rendezvous_failed", fd=endpoint.fd, error=repr(error))


def no_thread(error: OSError) -> None:
    """Called when the connection thread could not be started."""
    event(WARNING, "fastsock.no_connection_thread", error=repr(error))


def start_thread_again() -> bool:
    """Starts the connection thread after a fork has stopped it. Returns false if it could not be started."""
    try:
        control.start_again()
    except OSError as error:
        no_thread(error)
        return False
    return True


def fork_is_over() -> None:
    """Starts the connection thread again after a fork. From Python 3.12 on, the interpreter warns of threads that it
    finds after this call, so the thread starts later: at a call on a connection, or in an event loop that has one."""
    if sys.version_info < (3, 12):
        start_thread_again()
    else:
        control.wake_loops()


# ---- called by the rest of the package -----------------------------------------------------------------------


def leave(endpoint: Endpoint) -> bool:
    """Takes a connection back to kernel TCP, before other code reads and writes its descriptor. Returns false, and logs
    an event, if resources are missing."""
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
    """Logs that the ring of a connection is broken; `what` says how. The caller resets the connection."""
    if endpoint.own_fault:
        event(WARNING, "fastsock.fault", fd=endpoint.fd, fault=what)
    else:
        event(WARNING, "fastsock.violation", fd=endpoint.fd, violation=what)


def path_from(standing: tuple[bool, bool, bool, str]) -> Path:
    """Returns the path for `Endpoint.standing`: "ring" as soon as one direction has moved."""
    from fastsock.statistics import Path

    sending, receiving, attached, reason = standing
    if not (sending or receiving):
        return Path("tcp", reason or (Reason.BACK if attached else Reason.SEEKING))
    return Path("ring", "both directions" if sending and receiving else "sending" if sending else "receiving")


install_policy(sys.modules[__name__])
config.on_change(_apply)
