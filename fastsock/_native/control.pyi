"""The connection thread and its accept queue, parked regions, our descriptors, and constants of the core."""

VERSION: int
"""Of the protocol."""
LOOK_MAGIC: int
SEEN_MAGIC: int
NO_MORE: int
LOOKS: tuple[int, int, int]
FLAGS: tuple[int, int, int, int, int, int, int]
"""Of datagrams to and from a connection thread (core/control/introspection.h)."""
LOOK_SHAPE: str
SEEN_SHAPE: str
PROCESS_SHAPE: str
END_SHAPE: str
"""Their formats, for `struct`."""

# ---- regions

def memory_used() -> int:
    """Bytes of regions that this process has mapped, as they count against the cap."""

def parked() -> int:
    """How many regions the seekers of this process keep for their next connection."""

def drop_parked() -> bool:
    """Gives back all parked regions. Whether there were any."""

# ---- descriptors out of the program's way

def new_eventfd() -> int:
    """An eventfd in our share of the numbers. OSError without one, as keep_away."""

def keep_away(fd: int, passing: bool = False) -> int:
    """Moves a descriptor into our share of the numbers, its upper half if it serves a meeting only (`passing`).
    BlockingIOError when that is full, OSError (EMFILE) when the program is near its limit or `fd` is negative."""

# ---- the accept queue

def set_backlog(length: int) -> None:
    """The bound of the accept queue: the largest backlog any listener asked for."""

# ---- the thread

def start_again() -> None:
    """Starts the thread if a fork has stopped or delayed it, and no fork is under way. OSError if it cannot be
    started."""

def wake_loops() -> None:
    """The loops of this process start the thread again, each with its next turn."""
