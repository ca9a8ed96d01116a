"""The protocol of the loop's own transport, and the wrappers of loop methods that install it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastsock._native.transport import Transport
from typing_extensions import Buffer

def close_queue(loop: Any) -> None:
    """Closes the loop's completion queue, if it has one. Called before the loop is closed."""

def may_move(sock: Any) -> bool:
    """Returns true if connections of this object may move: a socket of an internet family, and fastsock serves this
    process."""

class RelayFactory:
    """A protocol factory for the loop's own transport: creates the program's protocol and a relay below. `sock`: the socket
    object of the connection, if the program gave one."""

    def __new__(cls, loop: Any, protocol_factory: Callable[[], Any], sock: Any = None) -> RelayFactory: ...
    def __call__(self) -> RelayProtocol: ...

class ConnectionFactory(RelayFactory):
    """A RelayFactory for a single connection; keeps the relay."""

async def made_above(
    connecting: Coroutine[Any, Any, tuple[Any, Any]], factory: ConnectionFactory
) -> tuple[Transport, Any]:
    """Awaits a connection that a loop's method makes with this factory. Returns (our transport, the program's protocol)."""

def connecting(original: Any, secured: Any) -> Any:
    """Returns a wrapper of uvloop's create_connection. `original`: uvloop's method. `secured`: the method for connections
    with TLS."""

def making_of_socket(original: Any) -> Any:
    """Returns a wrapper of the stdlib loops' _make_socket_transport."""

class RelayProtocol:
    """The protocol between the loop's transport and ours."""

    def replace(self) -> None:
        """Puts another relay in this one's place, as the program's new protocol is of the other kind (buffered or not)."""
    def connection_made(self, lower: Any, /) -> None: ...
    def connection_lost(self, error: BaseException | None, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

class BufferedRelay(RelayProtocol):
    """The relay for a BufferedProtocol: the loop's transport reads into the protocol's own buffer."""

    def get_buffer(self, hint: int, /) -> Buffer: ...
    def buffer_updated(self, count: int, /) -> None: ...

class BufferedRelayProtocol(BufferedRelay, asyncio.BufferedProtocol):
    """The relay below a BufferedProtocol. asyncio checks the base class."""
