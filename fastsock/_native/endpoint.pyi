"""The endpoint: one end of one connection, whichever path its bytes take."""

from collections.abc import Callable
from typing import Any

class Endpoint:
    """One end of one TCP connection in this process."""

    def __new__(cls, fd: int, later: bool = False) -> Endpoint:
        """OSError if `fd` is no open descriptor; with `later` the kernel is asked which socket it is only once that matters."""
    # identity
    @property
    def fd(self) -> int:
        """A descriptor of the kernel connection."""
    @property
    def descriptors(self) -> set[int]:
        """All descriptors of the connection that this process knows of."""
    @property
    def inode(self) -> int:
        """The kernel's number of the socket: the same for all its descriptors."""
    @property
    def holders(self) -> int:
        """Processes that have this connection open."""
    # rendezvous
    search: Any
    """Who looks for the peer while the path is undecided, else None: has `withdraw(endpoint)`."""
    step: Callable[[Endpoint], None] | None
    """Called by every operation from `next_step` on while the path is undecided; None once it is decided."""
    @property
    def reason(self) -> str:
        """Why the connection is on kernel TCP; None until its undecided time begins. `note_reason` sets it."""
    kit: Any
    """The region, once attached: has `ask_for_doorbell()`, `before_end()` and `release(recyclable)`."""
    session: Any
    """Its `note` is called with the number of operations when the endpoint ends; None: nobody's."""
    queue: Any
    """The completion queue of the loop that drives the endpoint, or None: has `watch_eventfd(fd)` and
    `ignore_eventfd(fd)`, which are called before the endpoint attaches and when it has not, and `keep_late(eventfd,
    data)`."""
    operations: int
    """Operations through the facade, ever."""
    next_step: int
    """The number of the operation that takes the next step."""
    # state
    @property
    def attached(self) -> bool:
        """Whether it has a region."""
    @property
    def peer_consents(self) -> bool:
        """Whether the other end is attached too."""
    @property
    def standing(self) -> tuple[bool, bool, bool, str]:
        """What a connection's path is told from: (sending moved, receiving moved, attached, reason)."""
    @property
    def exposed(self) -> bool:
        """Whether somebody may poll the descriptor."""
    @property
    def driven(self) -> bool:
        """Whether an event loop's transport drives it: nobody else reads, writes or polls the descriptor."""
    @property
    def broken(self) -> bool:
        """Whether it was reset after a violation."""
    @property
    def finished(self) -> bool:
        """Whether it has ended in this process."""
    @property
    def left(self) -> bool:
        """Whether somebody else reads and writes the descriptor by now."""
    @property
    def bridge(self) -> int:
        """Process id of the bridge that the descriptor leads to; 0: none."""
    @property
    def window(self) -> int:
        """w of the region, descriptors; 0 before it is attached."""
    def note_local(self, here: bool) -> None:
        """Whether the peer is on this host, which whoever decides the path has found out."""
    # options
    nodelay: bool
    """TCP_NODELAY: nothing is combined."""
    def forget_timeouts(self) -> None:
        """SO_RCVTIMEO or SO_SNDTIMEO was set: the next wait asks the kernel for both."""
    @property
    def oob_inline(self) -> bool:
        """SO_OOBINLINE on the ring."""
    def set_oob_inline(self, inline: bool) -> bool:
        """Sets SO_OOBINLINE on the ring. False if the endpoint has ended: then the option is the kernel's alone."""
    def limit_buffers(self, receive: int, send: int) -> None:
        """SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set."""
    @property
    def shown_send_buffer(self) -> int | None:
        """SO_SNDBUF as the program knows it, bytes; None if that is the kernel's."""
    def needs_kernel(self) -> bool:
        """Whether an option set earlier asks for what only the kernel's stream can do."""
    # life
    def adopt(self, fd: int) -> None:
        """Adds a descriptor of this connection."""
    def forget(self, fd: int) -> None:
        """`fd` is about to be closed, or no longer means this connection. With the last one the endpoint ends."""
    def attach(
        self,
        memory: int,
        size: int,
        side: int,
        wake_fd: int,
        peer_fd: int,
        ack_threshold: int,
        combine_limit: int,
        combine_when_full: bool = True,
    ) -> None:
        """Takes a region (address and bytes, side 0 or 1, the two eventfds) and gives consent. ValueError if the region
        is unsound, OSError if the connection cannot move."""
    def expose(self) -> None:
        """The descriptor's number was handed out: from now on it must be readable exactly while something waits."""
    def leave(self) -> bool:
        """Takes the connection back to the kernel, because somebody else is about to read and write the descriptor.
        False if that is not possible; it stays where it was then. If the peer cannot help, the near end of a bridge
        takes the place of the kernel connection."""
    def shutdown(self, receiving: bool, sending: bool) -> bool:
        """Before the kernel's shutdown: packet FIN for a half-close. Whether an ENOTCONN of the kernel's is to be passed
        over."""
    def wake_own_sleepers(self) -> None:
        """After a shutdown: threads that sleep in a call on this connection look again."""
    def reset(self) -> str:
        """A violation: dissolves the connection (the peer gets a RST) and returns what was wrong."""
    def begin_attaching(self) -> bool:
        """Whether the endpoint may attach now, and no other process will share it before `end_attaching`."""
    def end_attaching(self) -> None:
        """It is attached, with everything that belongs to it, or will not be."""
    def finish(self) -> None:
        """The connection ends in this process: FIN, or a reset if data lies unread."""
    def serve_listener(self) -> None:
        """This endpoint only polls for connections."""

    def ends(self) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
        """((address, port), (address, port)), local end first, addresses packed. OSError if not connected."""
    def describe(self) -> dict[str, Any]:
        """Where this end stands, for reports of what went wrong."""
