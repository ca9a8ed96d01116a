"""Sending files: the kernel's own sendfile would write past the ring."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

from fastsock import facade
from fastsock.aio.transports import Transport, is_stdlib

__all__ = ["WRAPPERS"]

SENDFILE_PIECE = 262144  # bytes read from the file and written at once


def _wrap_sendfile(original: Any) -> Any:
    async def sendfile(
        self: Any, transport: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True
    ) -> int:
        if not isinstance(transport, Transport):
            return await original(self, transport, file, offset, count, fallback=fallback)  # type: ignore[no-any-return]
        if transport.is_closing():
            raise RuntimeError("Transport is closing")
        if transport.on_kernel and is_stdlib(self):
            # The kernel's own sendfile. Until it is done the loop's transport refuses to write.
            transport.sends_file = True
            try:
                return await original(self, transport.lower, file, offset, count, fallback=False)  # type: ignore[no-any-return]
            except asyncio.SendfileNotAvailableError:
                if not fallback:
                    raise
            finally:
                transport.sends_file = False
        else:
            if is_stdlib(self):
                self._check_sendfile_params(transport.lower.get_extra_info("socket"), file, offset, count)
            if not fallback:
                _require_regular(file)
        return await _send_file(self, transport, file, offset, count)

    return sendfile


_NO_NATIVE_SENDFILE = asyncio.BaseEventLoop._sock_sendfile_native  # type: ignore[attr-defined]


def _wrap_sock_sendfile(original: Any) -> Any:
    async def sock_sendfile(
        self: Any, sock: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool | None = None
    ) -> int:
        endpoint = sock._endpoint if isinstance(sock, facade.socket) else None
        refuses = fallback is False and getattr(type(self), "_sock_sendfile_native", None) is _NO_NATIVE_SENDFILE
        if refuses or endpoint is None or not (endpoint.attached or endpoint.undecided):
            options = {} if fallback is None else {"fallback": fallback}
            return await original(self, sock, file, offset, count, **options)  # type: ignore[no-any-return]
        # The kernel's sendfile would write past the ring.
        if is_stdlib(self):
            self._check_sendfile_params(sock, file, offset, count)
        if fallback is False:
            _require_regular(file)
        return await _send_pieces(self, file, offset, count, lambda piece: self.sock_sendall(sock, piece))

    return sock_sendfile


def _require_regular(file: Any) -> None:
    """What the kernel's sendfile takes. SendfileNotAvailableError for anything else."""
    try:
        os.fstat(file.fileno())
    except (AttributeError, OSError):  # (io.UnsupportedOperation is an OSError)
        raise asyncio.SendfileNotAvailableError("not a regular file") from None


class _Drain(asyncio.Protocol):
    """Stands in for the program's protocol while a file is sent, and waits for room."""

    def __init__(self, loop: Any, transport: Transport) -> None:
        self.loop = loop
        self.transport = transport
        self.protocol = transport.get_protocol()
        self.reads = transport.is_reading()
        self.room: asyncio.Future[None] | None = loop.create_future() if transport._protocol_paused else None
        transport.pause_reading()
        transport.set_protocol(self)

    async def drain(self) -> None:
        if self.transport.is_closing():
            raise ConnectionError("Connection closed by peer")
        if self.room is not None:
            await self.room

    def pause_writing(self) -> None:
        if self.room is None:
            self.room = self.loop.create_future()

    def resume_writing(self) -> None:
        if self.room is not None:
            self.room.set_result(None)
            self.room = None

    def connection_lost(self, error: Exception | None) -> None:
        if self.room is not None:
            self.room.set_exception(error or ConnectionError("Connection is closed by peer"))
            self.room = None
        self.protocol.connection_lost(error)

    def restore(self) -> None:
        paused = self.room is not None
        if self.room is not None:
            self.room.cancel()
        self.transport.set_protocol(self.protocol)
        if self.reads:
            self.transport.resume_reading()
        if paused:
            self.protocol.pause_writing()


async def _send_file(loop: Any, transport: Transport, file: Any, offset: int, count: int | None) -> int:
    """As asyncio's own fallback. The number of bytes written."""
    drain = _Drain(loop, transport)

    async def write(piece: bytes) -> None:
        await drain.drain()
        transport.write(piece)

    try:
        return await _send_pieces(loop, file, offset, count, write)
    finally:
        drain.restore()


async def _send_pieces(
    loop: Any, file: Any, offset: int, count: int | None, send: Callable[[bytes], Coroutine[Any, Any, None]]
) -> int:
    """Reads pieces in the executor and sends them. The number of bytes sent; the file's position is behind them."""
    if hasattr(file, "seek"):
        file.seek(offset)
    total = 0
    try:
        while count is None or total < count:
            size = SENDFILE_PIECE if count is None else min(SENDFILE_PIECE, count - total)
            piece = await loop.run_in_executor(None, file.read, size)
            if not piece:
                break
            await send(piece)
            total += len(piece)
        return total
    finally:
        if total > 0 and hasattr(file, "seek"):
            file.seek(offset + total)


WRAPPERS: dict[str, Callable[[Any], Any]] = {"sendfile": _wrap_sendfile, "sock_sendfile": _wrap_sock_sendfile}
"""What is replaced in a loop class."""
