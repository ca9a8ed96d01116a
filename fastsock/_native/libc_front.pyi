"""The front end at the C library's calls, which serves the sockets of this process."""

from collections.abc import Callable
from typing import Any

REASONS: dict[str, str]
"""Name -> text of the reasons for kernel TCP, in the order of their numbers from 1 on (core/include/fastsock_reasons.h)."""

COUNTERS: tuple[str, ...]
"""The names of the counters, in the order of the C structure."""

# settings
NAMES: tuple[str, ...]
"""The names of all settings."""

def unknown(variable: bytes) -> str | None:
    """Returns the most similar setting's name, or "", for a FASTSOCK_* variable that is no setting; None if it is one."""

class Given:
    """All settings, as the core takes them."""

    def apply_trust(self) -> None:
        """Applies the settings `trust` and `rendezvous_dir` alone, for groups and channels, which need no `install`."""

def read_settings(texts: dict[str, bytes]) -> tuple[Given, dict[str, Any]]:
    """Reads the given values, and defaults for all others: {name: text as of a variable}. Returns what `install` takes, and
    the values by name: of networks (16 bytes, prefix length), of users their numbers as text. Raises ValueError with
    the arguments of SettingError."""

# programs that are started
def find_program(name: bytes) -> bool:
    """Returns true if `fastsock-run` starts the program of this name, or says why that is not possible; false if `python
    NAME` is to be run: a script without an interpreter line or one of Python that was named itself, a folder, a zip file,
    an option, or a name that does not exist."""

# beginning and end
def install(given: Given, everything: bool) -> str | None:
    """Puts the functions in place, with these settings. They serve every TCP socket that is made from now on, or only those
    that are claimed. Returns None, or why that is not possible."""

def uninstall() -> None:
    """Serves no new sockets but claimed ones. If there were none, the functions are taken out when the last connection has ended."""

def serves() -> bool:
    """Returns true if the functions are in place."""

def say_goodbye() -> None:
    """Ends all connections, as the end of the process does, while other threads may be in calls: for tests."""

def configure(given: Given) -> None:
    """Applies other settings."""

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
