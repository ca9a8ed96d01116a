"""The front end at the C library's calls, which serves the sockets of this process."""

from collections.abc import Callable
from typing import Any

REASONS: dict[str, str]
"""Name -> text of the reasons for kernel TCP, in the order of their numbers from 1 on (core/include/fastsock_types.h)."""

COUNTERS: tuple[str, ...]
"""The names of the counters, in the order of the C structure."""

# programs that are started (enum fs_program_kind of interpose/libc_front.h)
STATIC: int
GO: int
FOREIGN: int
MUSL: int
SANITIZED: int

def program_kind(fd: int) -> int:
    """Returns what the executable file is that is open: one of the numbers above, or 0 if it can be served."""

# beginning and end
def install(settings: bytes, everything: bool) -> str | None:
    """Puts the functions in place, with settings in the format of `config.text_of`. They serve every TCP socket that is made from
    now on, or only those that are claimed. Returns None, or why that is not possible."""

def uninstall() -> None:
    """Serves no new sockets but claimed ones. If there were none, the functions are taken out when the last connection has ended."""

def serves() -> bool:
    """Returns true if the functions are in place."""

def say_goodbye() -> None:
    """Ends all connections, as the end of the process does, while other threads may be in calls: for tests."""

def configure(settings: bytes) -> None:
    """Applies other settings, in the same format."""

def claim(fd: int, made: bool) -> None:
    """Lets a TCP socket that the program has `made`, or was given, be served. Does nothing for other descriptors."""

# connections
class Connection:
    """One end of a connection."""

    fd: int
    standing: tuple[bool, bool, bool, str]
    """The input of `path_events.path_from`."""
    local: str
    """Address and port of this end; empty if it is not connected any more."""
    peer: str
    """The same of the other end."""
    counters: dict[str, int]
    """Its own, under the names of `fastsock.Stats`."""

def standing(fd: int) -> tuple[bool, bool, bool, str] | None:
    """Returns (sending has moved, receiving has moved, attached, reason), the input of `path_events.path_from`; None if the
    descriptor is no connection that is served."""

def connections() -> list[Connection]:
    """Returns the open connections."""

def describe(fd: int) -> dict[str, Any] | None:
    """Returns the state of the connection behind a number, for tests and for reports of faults; or None."""

def is_local_address(packed: bytes) -> bool:
    """Returns true if an address (16 bytes, IPv4 as ::ffff:...) belongs to this host."""

# counters
def counters() -> dict[str, int]:
    """Returns the counters of this process, summed over ended and live connections."""

def path_counts() -> tuple[int, dict[str, int]]:
    """Returns the number of connections on the ring, and {reason: number} of those on kernel TCP."""

# events, for the program's log
def listen(call: Callable[[], None]) -> None:
    """Lets `call()` be called in the main thread when events wait, and again only when all were taken. As the program may
    have any lock there, `call` must take none."""

def events(details: bool) -> int:
    """Returns how many events wait. Forgets those that only tell of paths first, unless `details`."""

def take_event() -> tuple[str, dict[str, Any]] | None:
    """Returns the oldest event and its values, or None."""

def report_to(folder: bytes) -> None:
    """Lets the events of this process and of those that it forks be reported to `fastsock doctor`, in this folder."""

# forks
def set_forks(fork: Callable[[], int], forkpty: Callable[[], tuple[int, int]]) -> None:
    """Sets the functions that `fork` and `forkpty` call."""

def fork() -> int:
    """Like os.fork."""

def forkpty() -> tuple[int, int]:
    """Like os.forkpty."""
