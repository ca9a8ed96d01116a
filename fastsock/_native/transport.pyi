"""The transport that the program's protocol sees, on the virtual interface, whatever the loop."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastsock._native.loop_connection import LoopConnection
from typing_extensions import Buffer

class Transport(LoopConnection):
    """One connection of a loop, on kernel TCP or on the ring. Its methods are asyncio.Transport's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """TypeError: the methods of event loops make transports."""
    def deliver_kept(self) -> None:
        """The loop's callback for bytes that wait, and hold the kernel's back."""
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
        """As asyncio.BaseTransport.get_extra_info. "fastsock" is the connection's path (fastsock.Path)."""
    def path(self) -> Any:
        """Which path the connection's bytes take, and why: a fastsock.Path."""
    @property
    def on_kernel(self) -> bool:
        """Whether the next bytes go through the loop's own transport."""
    @property
    def unsent(self) -> int:
        """Bytes that wait for room on the ring."""
    def sending_changes(self) -> asyncio.Future[None]:
        """A future that is done when bytes that waited are sent, or the connection is lost."""
    def write_file(self, data: bytes) -> None:
        """Bytes of the file that is being sent, while the program's own are refused."""
    def end_file(self) -> None:
        """No file is being sent any more."""
    def hand_out(self) -> None:
        """Somebody asks for the number of the descriptor: the connection stays on kernel TCP, or goes back there."""
    @property
    def _closing(self) -> bool: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _paused(self) -> bool: ...

class StdlibTransport(Transport):
    """On a stdlib loop: an instance of asyncio.Transport, as far as isinstance can tell."""

    @property
    def _start_tls_compatible(self) -> bool: ...
    @property
    def _eof(self) -> bool: ...
