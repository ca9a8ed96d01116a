"""What processes ask each other's control threads, regions, and reserved descriptor numbers."""

VERSION: int
"""The version of the protocol."""
LOOK_MAGIC: int
SEEN_MAGIC: int
NO_MORE: int
LOOKS: tuple[int, int, int, int]
FLAGS: tuple[int, int, int, int, int, int]
"""Constants of queries to connection threads (core/control/introspection.h)."""
LOOK_SHAPE: str
SEEN_SHAPE: str
PROCESS_SHAPE: str
END_SHAPE: str
LINK_SHAPE: str
"""Formats of the datagrams, for `struct`."""

# ---- regions

def memory_used() -> int:
    """Returns the bytes of regions that count against memory_cap."""

def drop_parked() -> bool:
    """Frees all kept regions. Returns true if there were any."""

# ---- reserved descriptor numbers

def new_eventfd() -> int:
    """Returns a new eventfd in the reserved range. Raises OSError like keep_away."""

def close_reserved(fd: int) -> None:
    """Closes such a descriptor. (To the program it is not open.)"""

def keep_away(fd: int, passing: bool = False) -> int:
    """Moves a descriptor into the reserved range of numbers, its upper half if it is only needed for a handshake (`passing`).
    Raises BlockingIOError if the range is full, and OSError (EMFILE) if the program is near its limit or `fd` is negative."""
