"""The state of a connection and its counters, for reading only."""

from typing import Any

COUNTERS: tuple[str, ...]
"""The names of the counters, in the order of struct fs_counters (core/ring/ring.h)."""

class ConnectionInfo:
    """The state of one end of a connection."""

    @property
    def fd(self) -> int:
        """A descriptor of the kernel connection."""
    @property
    def holders(self) -> int:
        """Number of processes that have this connection open."""
    @property
    def attached(self) -> bool:
        """True if the connection has a region."""
    @property
    def peer_consents(self) -> bool:
        """True if the other end is attached too."""
    @property
    def window(self) -> int:
        """Number of descriptors in each direction; 0 before the connection is attached."""
    @property
    def exposed(self) -> bool:
        """True if the program may poll the descriptor."""
    @property
    def driven(self) -> bool:
        """True if a transport of an event loop handles the connection: no other code uses the descriptor."""
    @property
    def broken(self) -> bool:
        """True if the connection was reset because its ring was broken."""
    @property
    def wrong(self) -> str:
        """The cause of the broken ring, or ""."""
    @property
    def own_fault(self) -> bool:
        """True if this side broke the ring, false if the peer did."""
    @property
    def left(self) -> bool:
        """True if the connection has fallen back to kernel TCP, so that other code may use the descriptor."""
    @property
    def finished(self) -> bool:
        """True if the connection has ended in this process."""
    @property
    def oob_inline(self) -> bool:
        """SO_OOBINLINE on the ring."""
    @property
    def undecided(self) -> bool:
        """True if the path is not decided yet."""
    @property
    def searching(self) -> bool:
        """True while the connection looks for its peer."""
    @property
    def stage(self) -> str:
        """The state of the search (enum fs_path_state) as text, for reports."""
    @property
    def operations(self) -> int:
        """Number of socket operations so far."""
    @property
    def reason(self) -> str:
        """Why the connection is on kernel TCP; "" if that is not decided, or if it is on the ring."""
    @property
    def standing(self) -> tuple[bool, bool, bool, str]:
        """(sending has moved, receiving has moved, attached, reason): the input of path_events.path_from."""
    def ends(self) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
        """Returns ((address, port), (address, port)), the local end first, addresses packed. Raises OSError if not connected."""
    def describe(self) -> dict[str, Any]:
        """Returns the state of this end, for error reports."""
