"""The protocol that the loop's own transport sees, and how a loop comes to have it below the program's."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastsock._native.loop_connection import LowerProtocol, LoopContext
from fastsock._native.transport import Transport
from typing_extensions import Buffer

def origin_of(loop: Any, new_origin: Callable[[Any], LoopContext]) -> LoopContext:
    """What the transports of this loop have in common. `new_origin` makes it of the loop, at the first connection."""

def may_move(sock: Any) -> bool:
    """Whether a connection that a loop makes of this object may move: a socket of an internet family, and fastsock is on."""

class RelayFactory:
    """A protocol factory for the loop's own transport: makes the program's protocol with a shim below it. `sock`: the
    socket object that the connection is made of, if the program has it. `port`: that it is made to; None: the connections are
    accepted, all by one service."""

    def __new__(
        cls, origin: LoopContext, protocol_factory: Callable[[], Any], sock: Any = None, port: Any = None
    ) -> RelayFactory: ...
    def __call__(self) -> RelayProtocol: ...

class ConnectionFactory(RelayFactory):
    """The ShimFactory of one connection, whose shim it knows."""

async def made_above(
    connecting: Coroutine[Any, Any, tuple[Any, Any]], factory: ConnectionFactory
) -> tuple[Transport, Any]:
    """What a loop's method makes with this factory, as a program shall see it: (our transport, the program's protocol)."""

def connecting(original: Any, secured: Any, new_origin: Callable[[Any], LoopContext]) -> Any:
    """uvloop's create_connection, from its own, and from one for connections with TLS. `new_origin`: as in origin_of."""

def making_of_socket(original: Any, new_origin: Callable[[Any], LoopContext]) -> Any:
    """The stdlib loops' _make_socket_transport, from their own. `new_origin`: as in origin_of."""

class RelayProtocol(LowerProtocol):
    """Stands between the loop's transport and ours, as a protocol."""

    def connection_made(self, lower: Any, /) -> None: ...
    def connection_lost(self, error: BaseException | None, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

class BufferedRelay(RelayProtocol):
    """The same below a BufferedProtocol: the loop's transport reads into the protocol's own buffer."""

    def get_buffer(self, hint: int, /) -> Buffer: ...
    def buffer_updated(self, count: int, /) -> None: ...
