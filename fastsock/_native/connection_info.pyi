"""What is told of connections: where one stands, and what they counted."""

from typing import Any

COUNTERS: tuple[str, ...]
"""The names of the counters, in the order of struct fs_counters (core/ring/ring.h)."""

class ConnectionInfo:
    """What one end of a connection tells of itself."""

    @property
    def fd(self) -> int:
        """A descriptor of the kernel connection."""
    @property
    def holders(self) -> int:
        """Processes that have this connection open."""
    @property
    def attached(self) -> bool:
        """Whether it has a region."""
    @property
    def peer_consents(self) -> bool:
        """Whether the other end is attached too."""
    @property
    def window(self) -> int:
        """w of the region, descriptors; 0 before it is attached."""
    @property
    def exposed(self) -> bool:
        """Whether somebody may poll the descriptor."""
    @property
    def driven(self) -> bool:
        """Whether an event loop's transport drives it: nobody else reads, writes or polls the descriptor."""
    @property
    def broken(self) -> bool:
        """Whether it was reset, as its ring was broken."""
    @property
    def wrong(self) -> str:
        """What has broken the ring; "": nothing."""
    @property
    def own_fault(self) -> bool:
        """Whether this side has broken it, and not the peer."""
    @property
    def left(self) -> bool:
        """Whether somebody else reads and writes the descriptor by now."""
    @property
    def finished(self) -> bool:
        """Whether it has ended in this process."""
    @property
    def oob_inline(self) -> bool:
        """SO_OOBINLINE on the ring."""
    @property
    def undecided(self) -> bool:
        """Whether an operation may still have something to do about the path."""
    @property
    def searching(self) -> bool:
        """Whether it looks for its peer."""
    @property
    def stage(self) -> str:
        """What it does about its path (enum fs_path_state), for reports."""
    @property
    def operations(self) -> int:
        """Operations through the facade, ever."""
    @property
    def reason(self) -> str:
        """Why the connection is on kernel TCP; "": nothing is decided yet, or it is not."""
    @property
    def standing(self) -> tuple[bool, bool, bool, str]:
        """What a connection's path is told from: (sending moved, receiving moved, attached, reason)."""
    def ends(self) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
        """((address, port), (address, port)), local end first, addresses packed. OSError if not connected."""
    def describe(self) -> dict[str, Any]:
        """Where this end stands, for reports of what went wrong."""
