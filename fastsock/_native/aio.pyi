"""The asyncio layer: a transport on the virtual interface, whatever the loop."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from typing_extensions import Buffer

class CompletionQueue:
    """Polls the hot connections of one loop and delivers what came; arms the quiet ones."""

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> CompletionQueue: ...
    @property
    def epoll(self) -> int:
        """The epoll descriptor that the loop watches; -1: none yet."""
    @property
    def begun(self) -> set[Transport]:
        """Transports with an endpoint."""
    def watch_eventfd(self, fd: int, /) -> None:
        """An endpoint of this queue is about to attach, and will sleep on this eventfd. OSError if that cannot be."""
    def keep_late(self, eventfd: int, data: bytes, /) -> None:
        """Of the endpoint that sleeps on this eventfd and leaves the ring: bytes that are not in the kernel's queue again."""
    def ignore_eventfd(self, fd: int, /) -> None:
        """The endpoint has not attached, or goes."""
    def close(self) -> None:
        """The loop is about to be closed: its connections end with their transports."""
    def wake(self) -> None:
        """The loop's callback for the epoll descriptor: eventfds were rung."""
    def probe(self) -> None:
        """The queue's timer, while there is something to watch."""
    def turn(self) -> None:
        """The queue's callback in a turn of the loop."""

def install(
    module: Any, buffered: type[ShimOfBuffered], stdlib: type[StdlibTransport], plain: tuple[type, type]
) -> None:
    """Tells this module whom it asks about paths (fastsock.aio.transports), the class of the shims below a
    BufferedProtocol, that of the transports on the stdlib's loops, and the two classes of sockets that are the facade's
    and the stdlib's."""

class Origin:
    """What the transports of a loop have in common. `stdlib`: whether it is one of the stdlib's loops."""

    def __new__(cls, loop: Any, queue: CompletionQueue, stdlib: bool) -> Origin: ...
    @property
    def loop(self) -> Any: ...
    @property
    def queue(self) -> CompletionQueue: ...

def may_move(sock: Any) -> bool:
    """Whether a connection that a loop makes of this object may move: a socket of an internet family, and fastsock is on."""

class ShimFactory:
    """A protocol factory for the loop's own transport: makes the program's protocol with a shim below it. `sock`: the
    socket object that the connection is made of, if the program has it."""

    def __new__(cls, loop: Any, protocol_factory: Callable[[], Any], sock: Any = None) -> ShimFactory: ...
    def __call__(self) -> Shim: ...

async def made_above(connecting: Coroutine[Any, Any, tuple[Any, Any]]) -> tuple[Transport, Any]:
    """What a loop's method makes with a ShimFactory, as a program shall see it: (our transport, the program's protocol)."""

def connecting(original: Any, secured: Any) -> Any:
    """uvloop's create_connection, from its own, and from one for connections with TLS."""

def making_of_socket(original: Any) -> Any:
    """The stdlib loops' _make_socket_transport, from their own."""

class Shim:
    """Stands between the loop's transport and ours, as a protocol."""

    def connection_made(self, lower: Any, /) -> None: ...
    def connection_lost(self, error: BaseException | None, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

class ShimOfBuffered(Shim):
    """The same below a BufferedProtocol: the loop's transport reads into the protocol's own buffer."""

    def get_buffer(self, hint: int, /) -> Buffer: ...
    def buffer_updated(self, count: int, /) -> None: ...

class Transport:
    """One connection of a loop, on kernel TCP or on the ring. Its methods are asyncio.Transport's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """TypeError: the methods of event loops make transports."""
    @property
    def lower(self) -> Any:
        """The loop's own transport."""
    @property
    def operations(self) -> int:
        """Reads and writes so far, while the connection is on the kernel."""
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
    sends_file: bool
    """The kernel sends a file, so nothing may move."""
    @property
    def on_kernel(self) -> bool:
        """Whether the loop's own transport has the connection to itself: there is no region yet."""
    def hand_out(self) -> None:
        """Somebody asks for the number of the descriptor: the connection stays on kernel TCP, or goes back there."""
    @property
    def _closing(self) -> bool: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _paused(self) -> bool: ...
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def _force_close(self, error: BaseException | None) -> None: ...

class StdlibTransport(Transport):
    """On a stdlib loop: an instance of asyncio.Transport, as far as isinstance can tell."""

    @property
    def _start_tls_compatible(self) -> bool: ...
    @property
    def _eof(self) -> bool: ...
