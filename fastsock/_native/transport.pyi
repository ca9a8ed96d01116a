"""The transport for the program's protocol, on kernel TCP or on the ring, for all loops."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastsock._native.loop_connection import LoopConnection
from typing_extensions import Buffer

class Transport(LoopConnection):
    """A connection of a loop, on kernel TCP or on the ring. Has the methods of asyncio.Transport."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Raises TypeError: only event loops create transports."""
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
        """Keeps the connection on kernel TCP, or takes it back there, as the program asks for the descriptor."""
    @property
    def _closing(self) -> bool: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _paused(self) -> bool: ...

class StdlibTransport(Transport):
    """The transport on a stdlib loop. isinstance() treats it as an asyncio.Transport."""

    @property
    def _start_tls_compatible(self) -> bool: ...
    @property
    def _eof(self) -> bool: ...
