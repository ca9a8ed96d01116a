"""The endpoints of this process: who is behind a descriptor, how a connection begins and how it steps until its path is
decided, what a fork does to them."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from fastsock._native.endpoint import Endpoint as Endpoint

REASONS: dict[str, int]
"""Names of the reasons why a connection is on kernel TCP, and their numbers (core/wire/reasons.h)."""

def name_reasons(texts: Iterable[str]) -> None:
    """The text of each reason, by its number."""

def path_counts() -> tuple[int, dict[str, int]]:
    """Connections of this process, connected plus accepted, by their path: on the ring, and on kernel TCP by reason."""

def count_as(before: str, reason: str) -> None:
    """A connection that was counted as opened for the reason `before`, and has no endpoint, stays on kernel TCP for another one."""

def find(fd: int) -> Endpoint | None:
    """The endpoint that `fd` belongs to in this process, by number or as a dup of a known connection. OSError if
    `fd` is no open descriptor."""

def tracked() -> dict[int, Endpoint]:
    """The live descriptor table: descriptor -> Endpoint. Read only."""

def endpoints() -> list[Endpoint]:
    """All live endpoints of this process."""

def counters() -> dict[str, int]:
    """The counters of this process: of endpoints that are gone and of those that live."""

def set_poll_budget(microseconds: int) -> None:
    """How long a wait may poll before it sleeps, in microseconds; 0: never."""

def before_fork() -> None:
    """This thread is about to fork: the fork itself counts the child in as a holder of every connection, before it
    exists, and out again if it fails."""

def after_fork_in_parent() -> None:
    """The fork that this thread announced is over, whether or not there is a child. Leaves errno alone."""

def after_fork_in_child() -> None:
    """The child's endpoints are inherited, and none of the threads that were inside them. It starts over with what is undecided."""

def before_exit() -> None:
    """Says goodbye on every connection, for os._exit, which runs no destructors."""

def keep_beneath(
    fork: Callable[[], int], forkpty: Callable[[], tuple[int, int]], exit: Callable[[int], NoReturn]
) -> None:
    """What `fork`, `forkpty` and `_exit` call: those that stood in `os` before these were put there first."""

def fork() -> int:
    """As os.fork. Starts the connection thread again afterwards."""

def forkpty() -> tuple[int, int]:
    """As os.forkpty, in the same way."""

def _exit(status: int) -> NoReturn:
    """As os._exit. Lets go of the connections first."""

def install_policy(module: Any) -> None:
    """What this module asks: `settings()`, which puts the settings in force; and what it tells: `moved(endpoint, name)`,
    `stays(endpoint)`, `report_violation(endpoint, what)`, `failed(endpoint, error)`, `no_thread(error)`, `fork_is_over()`."""

def set_limits(
    ports_allowed: bytes, ports_excluded: bytes, addresses_allowed: bytes, addresses_excluded: bytes
) -> None:
    """The settings of these names, as arrays of struct fs_port_range and of struct fs_network."""

def is_local_address(packed: bytes) -> bool:
    """Whether an address, 16 bytes with IPv4 as ::ffff:..., is one of this host's."""

def owner_of_peer(fd: int) -> int | None:
    """The user whose socket the other end of a connection on this host is, as the kernel tells it; None: it does not."""

def set_beginning(may_move: bool, move_after: int, meeting_ms: int) -> None:
    """The settings `enabled`, `move_after` and `meeting_ms`."""

def set_terms(
    window: int,
    chunk: int,
    ack_threshold: int,
    combine_limit: int,
    combine_when_full: bool,
    memory_cap: int,
    patience: float,
    trusts_any: bool,
    moves_polled: bool,
) -> None:
    """The settings that a search follows, `patience` in seconds. After `set_beginning`."""

def begin_undecided(endpoint: Endpoint) -> None:
    """Starts the undecided time of a connected endpoint."""

def begin_when_connected(endpoint: Endpoint) -> None:
    """A connect is under way: the undecided time begins with the first operation after it."""

def begin_search(endpoint: Endpoint, operations: int, reason: str) -> None:
    """The next operation starts the search of a connection that was counted as opened before, for `reason`, and has made so many."""

def decide(endpoint: Endpoint, reason: str) -> None:
    """The connection stays on kernel TCP for `reason`. Nothing happens if it is on the ring already."""
