"""sendfile for moved connections, whose data the kernel's sendfile would send past the ring."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastsock._native.transport import Transport

__all__ = ["STDLIB", "UVLOOP"]

SENDFILE_PIECE = 262144  # bytes read from the file and written at once


def _wrap_sendfile(original: Any) -> Any:
    """Wraps uvloop's sendfile, which does not support its own transports."""

    async def sendfile(
        self: Any, transport: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True
    ) -> int:
        if not isinstance(transport, Transport):
            return await original(self, transport, file, offset, count, fallback=fallback)  # type: ignore[no-any-return]
        if transport.is_closing():
            raise RuntimeError("Transport is closing")
        if not fallback:
            _number_of(file)
        return await _write_file(self, transport, file, offset, count)

    return sendfile


def _wrap_sendfile_fallback(original: Any) -> Any:
    async def _sendfile_fallback(self: Any, transport: Any, file: Any, offset: int, count: int | None) -> int:
        if not isinstance(transport, Transport):
            return await original(self, transport, file, offset, count)  # type: ignore[no-any-return]
        return await _write_file(self, transport, file, offset, count)

    return _sendfile_fallback


def _wrap_sendfile_native(original: Any) -> Any:
    async def _sendfile_native(self: Any, transport: Any, file: Any, offset: int, count: int | None) -> int:
        if not isinstance(transport, Transport):
            return await original(self, transport, file, offset, count)  # type: ignore[no-any-return]
        if transport.sends_file:
            raise RuntimeError("unable to send; sendfile is in progress")
        with _reading_paused(transport):
            transport.sends_file = True
            try:
                sent = await _post_file(self, transport, file, offset, count)
                if not transport.on_kernel:
                    return sent
                if transport.lower._loop is None:  # lost meanwhile
                    raise RuntimeError("Transport is closing")
                # As the original does. If cancelled, the transport stays able to write.
                try:
                    await transport.lower._make_empty_waiter()
                finally:
                    transport.lower._reset_empty_waiter()
                if sent == count:
                    return sent
                rest = None if count is None else count - sent
                return sent + await original(self, transport.lower, file, offset + sent, rest)  # type: ignore[no-any-return]
            finally:
                transport.end_file()

    return _sendfile_native


async def _post_file(loop: Any, transport: Any, file: Any, offset: int, count: int | None) -> int:
    """Sends a file on the ring with the semantics of sendfile: reads from its descriptor, sends after all data written
    before, and returns when everything is sent. Returns the number of bytes sent: fewer than `count` if the connection
    is on kernel TCP."""
    sent = 0
    await _until(transport, lambda: not transport.unsent)
    loop._check_sendfile_params(transport._sock, file, offset, count)
    number = _number_of(file)
    while not transport.on_kernel and sent != count:
        size = SENDFILE_PIECE if count is None else min(SENDFILE_PIECE, count - sent)
        try:
            piece = await loop.run_in_executor(None, os.pread, number, size, offset + sent)
        except OSError:
            if sent:
                raise
            raise asyncio.SendfileNotAvailableError("not a regular file") from None
        if not piece:
            break
        await _until(transport, lambda: True)
        transport.write_file(piece)
        sent += len(piece)
        os.lseek(number, offset + sent, os.SEEK_SET)
        await _until(transport, lambda: not transport.unsent)
    return sent


async def _write_file(loop: Any, transport: Transport, file: Any, offset: int, count: int | None) -> int:
    """Reads the file and writes its data, like asyncio's own fallback; the program may write meanwhile. Unlike there,
    the protocol is not replaced, so it still receives its callbacks."""

    async def send(piece: bytes) -> None:
        await _until(transport, lambda: not transport._protocol_paused)
        transport.write(piece)

    with _reading_paused(transport):
        return await _send_pieces(loop, file, offset, count, send)


async def _until(transport: Transport, met: Callable[[], bool]) -> None:
    """Waits until sending has made a condition true. Raises ConnectionError if the transport is closing."""
    while True:
        if transport.is_closing():
            raise ConnectionError("Connection closed by peer")
        if met():
            return
        await transport.sending_changes()


@contextlib.contextmanager
def _reading_paused(transport: Transport) -> Iterator[None]:
    reads = transport.is_reading()
    transport.pause_reading()
    try:
        yield
    finally:
        if reads:
            transport.resume_reading()


def _number_of(file: Any) -> int:
    """Returns the descriptor of a file that sendfile supports. Raises SendfileNotAvailableError for other objects."""
    try:
        number: int = file.fileno()
        os.fstat(number)
    except (AttributeError, OSError):  # (io.UnsupportedOperation is an OSError)
        raise asyncio.SendfileNotAvailableError("not a regular file") from None
    return number


async def _send_pieces(
    loop: Any, file: Any, offset: int, count: int | None, send: Callable[[bytes], Coroutine[Any, Any, None]]
) -> int:
    """Reads pieces in the executor and sends them. Returns the number of bytes sent; the file's position is after
    them."""
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


STDLIB: dict[str, Callable[[Any], Any]] = {
    "_sendfile_native": _wrap_sendfile_native,
    "_sendfile_fallback": _wrap_sendfile_fallback,
}
UVLOOP: dict[str, Callable[[Any], Any]] = {"sendfile": _wrap_sendfile}
"""Methods that are replaced in a loop class, and their wrappers."""
