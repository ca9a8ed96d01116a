"""What processes ask each other's control threads, regions, what an observer sees, and reserved descriptor numbers."""

from mmap import mmap

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

# ---- what an observer sees (core/wire/tap_page.h)

TAP_MAGIC: int
TAP_SIZE: int
TAP_KINDS: tuple[int, int, int, int, int, int, int, int]
TAP_ANSWERS: tuple[int, int, int, int]

class Tap:
    """An observer's end of a page by which a process shows it the bytes of its connections."""

    def __init__(self, memory: mmap, snaplen: int, port: int) -> None:
        """`snaplen`: bytes of each record to keep, at most. `port`: of the connections to see; 0: all."""

    @property
    def answer(self) -> int:
        """Of TAP_ANSWERS."""

    @property
    def dropped(self) -> int:
        """Records that found no room."""

    def close(self) -> None:
        """Ends the looking at once. No other method may follow."""

    def read(self, most: int) -> list[tuple[int, int, int, int, int, bytes]]:
        """Returns the next records, so many at most: kind, monotonic ns, inode, position, length and data of each."""

# ---- reserved descriptor numbers

def new_eventfd() -> int: ...
def close_reserved(fd: int) -> None: ...
def keep_away(fd: int, passing: bool = False) -> int: ...
