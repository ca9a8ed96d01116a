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

def memory_used() -> int: ...
def drop_parked() -> bool: ...

# ---- reserved descriptor numbers

def new_eventfd() -> int: ...
def close_reserved(fd: int) -> None: ...
def keep_away(fd: int, passing: bool = False) -> int: ...
