"""TCP between Python programs on one host, carried over shared memory instead of the kernel's TCP stack."""

from __future__ import annotations

import socket as _stdlib

from fastsock import observability as _observability
from fastsock import rendezvous as _rendezvous
from fastsock._native import vi as _vi
from fastsock.config import Settings, configure
from fastsock.config import active as _active
from fastsock.errors import SettingError
from fastsock.facade import fromfd, socket
from fastsock.observability import Path, Stats
from fastsock.patching import is_patched, patch, unpatch

__all__ = [
    "Path",
    "SettingError",
    "Settings",
    "Stats",
    "configure",
    "fromfd",
    "is_patched",
    "patch",
    "path_of",
    "socket",
    "stats",
    "unpatch",
]

__version__ = "0.1.0"


def stats() -> Stats:
    """The counters of this process, frozen."""
    return _observability.snapshot(_vi.counters())


def path_of(sock: _stdlib.socket) -> Path:
    """Which path a socket's bytes take, and why. For any socket object; raises nothing."""
    endpoint = getattr(sock, "_endpoint", None)
    if endpoint is None:
        return Path("tcp", "no connection of fastsock's" if _active().enabled else "disabled by settings")
    return _rendezvous.path_of_endpoint(endpoint)
