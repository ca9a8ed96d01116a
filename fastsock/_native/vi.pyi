"""The endpoints of this process: who is behind a descriptor, how a connection begins, what a fork does to them."""

from collections.abc import Callable, Iterable

from fastsock._native.endpoint import Endpoint as Endpoint

def name_reasons(texts: Iterable[str]) -> None:
    """Numbers the reasons that `note_reason` is told, in this order."""

def note_reason(endpoint: Endpoint, reason: str) -> None:
    """Why the connection is on kernel TCP, from now on; "": it is not."""

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

def after_fork_in_parent() -> int:
    """The fork that this thread announced is over, if there was one. Returns errno, for `leave_errno`."""

def leave_errno(error: int) -> None:
    """Sets errno, by which Python up to 3.11 tells of a fork that failed only after everything that runs behind a fork."""

def after_fork_in_child() -> None:
    """The child's endpoints are inherited, and none of the threads that were inside them."""

def before_exit() -> None:
    """Says goodbye on every connection, for os._exit, which runs no destructors."""

def install_beginning(reason: str, step: Callable[[Endpoint], None], settings: Callable[[], object]) -> None:
    """Tells this module why a connection is on kernel TCP at first, what its first step is, and what reads the
    settings, which calls `set_beginning`."""

def connections_opened() -> int:
    """Connections of this process so far, connected plus accepted."""

def set_beginning(may_move: bool, move_after: int, at_once: bool) -> None:
    """The settings `enabled` and `move_after`, and whether the first step is taken at once."""

def begin_undecided(endpoint: Endpoint) -> None:
    """Starts the undecided time of a connected endpoint."""

def begin_when_connected(endpoint: Endpoint) -> None:
    """A connect is under way: the undecided time begins with the first operation after it."""

def when_connected(endpoint: Endpoint) -> None:
    """The step of such an endpoint."""

def claim(
    endpoint: Endpoint, step: Callable[[Endpoint], None] | None, instead: Callable[[Endpoint], None] | None
) -> bool:
    """Whether the endpoint's step is still `step`; it is `instead` from then on. True for one thread only."""
