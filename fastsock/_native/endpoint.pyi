"""The endpoint: one end of one connection, whichever path its bytes take."""

from typing import Any

from fastsock._native.connection_info import ConnectionInfo
from fastsock._native.session_stats import SessionStats

class Endpoint(ConnectionInfo):
    """One end of one TCP connection in this process."""

    def __new__(cls, fd: int, later: bool = False) -> Endpoint:
        """OSError if `fd` is no open descriptor; with `later` the kernel is asked which socket it is only once that matters."""
    # identity
    @property
    def descriptors(self) -> set[int]:
        """All descriptors of the connection that this process knows of."""
    @property
    def inode(self) -> int:
        """The kernel's number of the socket: the same for all its descriptors."""
    # rendezvous
    session: SessionStats | None
    """What is known of the sessions of this one's service, which learns from this one when the endpoint ends. None: nothing."""
    queue: Any
    """The completion queue of the loop that drives the endpoint, or None: has `admit(endpoint)` and
    `dismiss(endpoint)`, which are called before the endpoint attaches and when it has not, and `keep_late(place, data)`."""
    # state
    @property
    def bridge_process(self) -> int:
        """Process id of the bridge that the descriptor leads to; 0: none."""
    # options
    nodelay: bool
    """TCP_NODELAY: nothing is combined."""
    def forget_timeouts(self) -> None:
        """SO_RCVTIMEO or SO_SNDTIMEO was set: the next wait asks the kernel for both."""
    def set_oob_inline(self, inline: bool) -> bool:
        """Sets SO_OOBINLINE on the ring. False if the endpoint has ended: then the option is the kernel's alone."""
    def limit_buffers(self, receive: int, send: int) -> None:
        """SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set."""
    @property
    def shown_send_buffer(self) -> int | None:
        """SO_SNDBUF as the program knows it, bytes; None if that is the kernel's."""
    # life
    def adopt(self, fd: int) -> None:
        """Adds a descriptor of this connection."""
    def forget(self, fd: int) -> None:
        """`fd` is about to be closed, or no longer means this connection. With the last one the endpoint ends."""
    def expose(self) -> None:
        """The descriptor's number was handed out: from now on it must be readable exactly while something waits."""
    def leave(self) -> bool:
        """Takes the connection back to the kernel, because somebody else is about to read and write the descriptor.
        False if that is not possible; it stays where it was then. If the peer cannot help, the near end of a bridge
        takes the place of the kernel connection."""
    def shutdown(self, receiving: bool, sending: bool) -> bool:
        """Before the kernel's shutdown: packet FIN for a half-close. Whether an ENOTCONN of the kernel's is to be passed
        over."""
    def wake_own(self) -> None:
        """After a shutdown: threads that sleep in a call on this connection look again."""
    def reset(self) -> str:
        """The ring is broken: dissolves the connection (the peer gets a RST) and returns what was wrong; `own_fault` says at which
        side."""
    def serve_listener(self) -> None:
        """This endpoint only polls for connections."""
