"""The transport for the program's protocol, on kernel TCP or on the ring, for all loops, and the completion queue of a loop."""

import asyncio
from collections.abc import Iterable
from typing import Any, final

from typing_extensions import Buffer

@final
class CompletionQueue:
    """Polls the connections of an event loop on the ring, delivers their data, and leaves idle ones to the event set."""

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> CompletionQueue: ...
    @property
    def epoll(self) -> int:
        """The descriptor of the event set, which the loop polls; -1 if there is none yet."""
    @property
    def begun(self) -> set[Transport]:
        """Transports with an endpoint."""
    def close(self) -> None:
        """Ends the loop's connections. Called before the loop is closed."""
    def wake(self) -> None:
        """The loop's callback for the event set's descriptor: an armed connection has data or room."""
    def look_again(self) -> None:
        """The timer's callback: looks at connections of which no event may tell."""
    def poll(self) -> None:
        """The queue's callback in each iteration of the loop, while a connection is active."""

@final
class Transport:
    """A connection of a loop, on kernel TCP or on the ring. Has the methods of asyncio.Transport."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Raises TypeError: only event loops create transports."""
    @property
    def lower(self) -> Any:
        """The loop's own transport."""
    @property
    def operations(self) -> int:
        """Number of reads and writes while the connection is on kernel TCP."""
    sends_file: bool
    """True while a file is sent: the connection may not move, and the program may not write."""
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def _force_close(self, error: BaseException | None) -> None: ...
    def deliver_kept(self) -> None:
        """Delivers the bytes in `late`. A callback of the loop; the lower transport is paused until then."""
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_reading(self) -> bool: ...
    def write(self, data: Buffer) -> None: ...
    def writelines(self, list_of_data: Iterable[Buffer]) -> None: ...
    def can_write_eof(self) -> bool: ...
    def write_eof(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_protocol(self) -> Any: ...
    def set_protocol(self, protocol: Any) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Like asyncio.BaseTransport.get_extra_info. "fastsock" gives the connection's path (fastsock.Path)."""
    def path(self) -> Any:
        """Returns the connection's path and its reason: a fastsock.Path."""
    @property
    def on_kernel(self) -> bool:
        """True if the next bytes go through the loop's own transport."""
    @property
    def unsent(self) -> int:
        """Number of bytes that wait for room on the ring."""
    def sending_changes(self) -> asyncio.Future[None]:
        """Returns a future that is done when waiting bytes were sent, or the connection is lost."""
    def write_file(self, data: bytes) -> None:
        """Writes bytes of a file, while writes of the program are refused."""
    def end_file(self) -> None:
        """Ends the sending of a file."""
    def hand_out(self) -> None:
        """Has the front end serve the number, as the program asks for it; or takes the connection back to kernel TCP."""
    @property
    def _closing(self) -> bool: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _paused(self) -> bool: ...
    @property
    def _eof(self) -> bool: ...
    _protocol: Any
    # Attributes of the loop's own transport:
    _sock: Any
    _sock_fd: Any
    _extra: Any
    _server: Any
    _loop: Any
    _conn_lost: Any
    _buffer: Any
    _empty_waiter: Any
    _sendfile_compatible: Any
    _start_tls_compatible: Any
