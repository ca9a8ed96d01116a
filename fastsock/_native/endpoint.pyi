"""The endpoint: one end of a connection, on kernel TCP or on the ring."""

from typing import Any

from fastsock._native.connection_info import ConnectionInfo
from fastsock._native.session_stats import SessionStats

class Endpoint(ConnectionInfo):
    """One end of a TCP connection in this process."""

    def __new__(cls, fd: int, later: bool = False) -> Endpoint:
        """Raises OSError if `fd` is not an open descriptor. With `later` the inode is read when it is first needed."""
    # identity
    @property
    def descriptors(self) -> set[int]:
        """All known descriptors of the connection in this process."""
    @property
    def inode(self) -> int:
        """The inode of the kernel's socket, the same for all its descriptors."""
    # rendezvous
    session: SessionStats | None
    """Statistics of the service's sessions, updated when the endpoint ends; or None."""
    queue: Any
    """The completion queue of the event loop that handles the endpoint, or None. Its `admit(endpoint)` is called before the
    endpoint attaches, `dismiss(endpoint)` if that failed, and `keep_late(slot, data)` at a fallback."""
    # state
    @property
    def bridge_process(self) -> int:
        """Process id of the bridge behind the descriptor, or 0."""
    # options
    nodelay: bool
    """TCP_NODELAY: small sends are not combined."""
    def forget_timeouts(self) -> None:
        """Called when SO_RCVTIMEO or SO_SNDTIMEO was set: the next wait reads both from the kernel."""
    def set_oob_inline(self, inline: bool) -> bool:
        """Sets SO_OOBINLINE on the ring. Returns false if the endpoint has ended; then only the kernel has the option."""
    def limit_buffers(self, receive: int, send: int) -> None:
        """Sets limits from SO_RCVBUF and SO_SNDBUF, in bytes as the kernel reports them; 0: not set."""
    @property
    def shown_send_buffer(self) -> int | None:
        """SO_SNDBUF in bytes as the program knows it; None if the kernel's value is right."""
    # life
    def adopt(self, fd: int) -> None:
        """Adds a descriptor of this connection."""
    def forget(self, fd: int) -> None:
        """Removes `fd`, which is about to be closed or means another connection now. The endpoint ends with the last one."""
    def expose(self) -> None:
        """Called when the descriptor was handed out: from now on it is readable exactly while there is data."""
    def leave(self) -> bool:
        """Takes the connection back to kernel TCP, as other code is about to read and write the descriptor. If the peer does
        not cooperate, a bridge process forwards the data. Returns false if the connection must stay on the ring."""
    def shutdown(self, receiving: bool, sending: bool) -> bool:
        """Called before the kernel's shutdown: sends packet FIN for a half-close. Returns true if the caller must ignore
        ENOTCONN of the kernel's call."""
    def wake_own(self) -> None:
        """Wakes threads that sleep in calls on this connection, after a shutdown."""
    def reset(self) -> str:
        """Resets the connection, whose ring is broken: the peer gets a RST. Returns the cause; `own_fault` says which side."""
    def serve_listener(self) -> None:
        """Marks the endpoint of a listener, which only polls for connections."""
