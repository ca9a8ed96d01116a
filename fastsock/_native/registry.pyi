"""The endpoints of this process: look-up by descriptor, the start of connections, and the steps until the path is decided."""

from typing import Any

from fastsock._native.endpoint import Endpoint as Endpoint

REASONS: dict[str, str]
"""Name -> text of the reasons for kernel TCP, in the order of their numbers from 1 on (core/include/fastsock_types.h)."""

def path_counts() -> tuple[int, dict[str, int]]:
    """Returns the number of connections on the ring, and {reason: number} of those on kernel TCP."""

def find(fd: int) -> Endpoint | None:
    """Returns the endpoint of a descriptor, also if it is an unknown duplicate, or None. Raises OSError if `fd` is not an open
    descriptor."""

def tracked() -> dict[int, Endpoint]:
    """Returns the live table descriptor -> Endpoint. The caller must not change it."""

def endpoints() -> list[Endpoint]:
    """Returns all live endpoints of this process."""

def counters() -> dict[str, int]:
    """Returns the counters of this process, summed over ended and live endpoints."""

def is_served_below() -> bool:
    """Returns true if libfastsock.so serves this process at the C library's calls: Python then makes no endpoints."""

def serve_below(settings: bytes) -> str | None:
    """Lets libfastsock.so serve this process at the C library's calls, with settings in the format of `config.text_of`. Returns
    None, or why that is not possible."""

def end_below() -> None:
    """Serves no new connections at the C library's calls. Its functions are taken out when the last one has ended."""

def standing_below(fd: int) -> tuple[bool, bool, bool, str] | None:
    """Returns what `Endpoint.standing` is of a connection that is served at the C library's calls, or None."""

def set_poll_budget(microseconds: int) -> None:
    """Sets the longest time that a wait polls before it sleeps, in microseconds; 0: never poll."""

def install_policy(module: Any) -> None:
    """Sets the module with the callbacks: `settings()`, which applies the settings; `moved(endpoint, name)`,
    `stays(endpoint)`, `report_violation(endpoint, what)`, `failed(endpoint, error)`, `no_thread(error)`, `fork_is_over()`."""

def set_limits(
    ports_allowed: bytes, ports_excluded: bytes, addresses_allowed: bytes, addresses_excluded: bytes
) -> None:
    """Applies the settings of these names, given as arrays of struct fs_port_range and struct fs_network."""

def set_trust(any_user: bool, own_user: bool, named: bytes) -> None:
    """Applies the setting `trust`: every user; this process's and root; the users in an array of uint32_t."""

def is_local_address(packed: bytes) -> bool:
    """Returns true if an address (16 bytes, IPv4 as ::ffff:...) belongs to this host."""

def owner_of_peer(fd: int) -> int | None:
    """Returns the user id of the socket at the other end, on this host, or None if the kernel does not tell."""

def set_beginning(may_move: bool, move_after: int, meeting_ms: int) -> None:
    """Applies the settings `enabled`, `move_after` and `_meeting_ms`."""

def set_terms(
    window: int,
    chunk: int,
    ack_threshold: int,
    combine_limit: int,
    combine_when_full: bool,
    memory_cap: int,
    patience: float,
    moves_polled: bool,
) -> None:
    """Applies the settings of the search for peers; `patience` in seconds. Call `set_beginning` first."""

def begin_undecided(endpoint: Endpoint) -> None:
    """Starts a connected endpoint: its path is undecided, and its operations are counted."""

def begin_when_connected(endpoint: Endpoint) -> None:
    """Prepares an endpoint whose connect is in progress: its first operation afterwards starts it."""

def decide(endpoint: Endpoint, reason: str) -> None:
    """Keeps the connection on kernel TCP for `reason`. Does nothing if it is on the ring already."""

def give_back_descriptors() -> bool:
    """Called when the program is out of descriptors. Ends the searches for peers, which use some. Returns true if there were any."""
