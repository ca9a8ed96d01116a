"""asyncio's programs, on the standard library's loop and on uvloop: streams, protocols of both kinds, `sock_*`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from tests.soak import handing, watch
from tests.soak.greeting import HELLO, hello, talk_of
from tests.soak.plan import Features
from tests.soak.stream import Talk
from tests.soak.watch import PATIENCE

PIECES = (1, 48, 64, 700, 4096, 70_000, 300_000)
TAKES = (1, 64, 1000, 65_536, 262_144)


class _End:
    """What all programs share: a task that sends when it may, and the planned end in the middle."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.changed = asyncio.Event()

    async def send_all(self, send: Callable[[bytes], Awaitable[None]], finish: Callable[[], None]) -> None:
        talk = self.talk
        while not talk.shut and not talk.stage_over:
            self.changed.clear()
            if talk.allowed:
                data = talk.next_out(talk.rng.choice(PIECES))
                await send(data)
            elif talk.sent_all:
                finish()
                talk.shut = True
                talk.moved_on()
            elif talk.eof:
                return
            else:
                await self.changed.wait()
        self.look_at_event()

    def news(self) -> None:
        self.changed.set()
        self.look_at_event()

    def look_at_event(self) -> None:
        if self.talk.at_event and (self.talk.now.event or "").startswith("abort"):
            raise handing.GivesUp

    def give_up(self, transport: Any) -> None:
        manner = (self.talk.now.event or "").removeprefix("abort-")
        if manner == "linger0":
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, handing.LINGER_ZERO)
            transport.close()
        elif manner == "shutdown":
            transport.abort()
        else:
            transport.close()


# ---- streams -------------------------------------------------------------------------------------------------


async def streams(talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    end = _End(talk)
    rng = talk.rng

    def check() -> None:
        """(A write to uvloop's transport that is closed is an error of the program's, a RuntimeError.)"""
        if writer.transport.is_closing():
            raise ConnectionError("the transport is closing")

    async def send(data: bytes) -> None:
        check()
        if rng.random() < 0.3:
            writer.writelines([data[: len(data) // 2], data[len(data) // 2 :]])
        else:
            writer.write(data)
        talk.did_send(len(data))
        if rng.random() < 0.8 or talk.sent == talk.total_out:
            await writer.drain()

    def finish() -> None:
        check()
        writer.write_eof()

    async def receive() -> None:
        while not talk.eof:
            data = await reader.read(rng.choice(TAKES))
            if data:
                talk.took(data)
            else:
                talk.ended()
            end.news()
            if rng.random() < 0.02:
                await asyncio.sleep(rng.random() * 0.02)

    try:
        await _both(receive(), end.send_all(send, finish))
        await writer.drain()
    except handing.GivesUp:
        end.give_up(writer.transport)
        raise
    finally:
        writer.close()


async def _both(receive: Any, send: Any) -> None:
    """Both tasks to their end. An error of either ends the other one."""
    tasks = [asyncio.ensure_future(receive), asyncio.ensure_future(send)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ---- protocols -----------------------------------------------------------------------------------------------


class Pump(_End, asyncio.BaseProtocol):
    """What both kinds of protocol do with bytes."""

    transport: Any

    def __init__(self, talk: Talk) -> None:
        super().__init__(talk)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self.talk.secured:
            self.talk.handle = transport

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self.changed.set()

    def take(self, data: bytes | memoryview) -> None:
        talk = self.talk
        try:
            talk.took(data)
            self.news()
        except Exception as error:
            self.fail(error)
            return
        if talk.at_event and not self.ended.done():  # TLS is next: its handshake is somebody else's
            self.transport.pause_reading()
        elif talk.secured and talk.over and not self.ended.done():
            self.ended.set_result(None)
        elif talk.rng.random() < 0.01 and not self.transport.is_closing() and self.transport.is_reading():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(talk.rng.random() * 0.03, self.read_again, self.transport)

    def read_again(self, paused: Any) -> None:
        """(Bytes may come above TLS before `start_tls` has returned: what was paused then is the transport below.)"""
        if not paused.is_closing() and not self.talk.at_event:
            paused.resume_reading()

    def eof_received(self) -> bool:
        self.talk.ended()
        self.changed.set()
        if not self.ended.done():
            self.ended.set_result(None)
        return not self.talk.secured

    def connection_lost(self, error: Exception | None) -> None:
        self.writable.set()
        self.fail(error or ConnectionError("connection_lost without an end of the stream"))

    def sent_all(self, sending: asyncio.Future[None]) -> None:
        if sending.cancelled() or self.ended.done():
            return
        error = sending.exception()
        if error is not None:
            self.fail(error)
        elif self.talk.secured and self.talk.over:
            self.ended.set_result(None)

    async def send(self, data: bytes) -> None:
        await self.writable.wait()
        if self.transport.is_closing():
            raise ConnectionError("the transport is closing")
        self.transport.write(data)
        self.talk.did_send(len(data))
        if self.talk.at_event and self.talk.now.event == "tls":  # the peer may begin at once
            self.transport.pause_reading()
        if self.talk.rng.random() < 0.1:
            await asyncio.sleep(0)

    def write_eof(self) -> None:
        if self.transport.is_closing():
            raise ConnectionError("the transport is closing")
        self.transport.write_eof()

    async def run(self) -> None:
        try:
            if self.talk.now.event == "tls":
                await self.begin_tls()
            sending = asyncio.ensure_future(self.send_all(self.send, self.write_eof))
            sending.add_done_callback(self.sent_all)
            try:
                await self.ended
                await sending
                await self.written()
            finally:
                sending.cancel()
        except handing.GivesUp:
            self.give_up(self.transport)
            raise
        finally:
            if self.ended.done() and not self.ended.cancelled():
                self.ended.exception()
            self.transport.close()

    async def begin_tls(self) -> None:
        talk = self.talk
        while not talk.at_event and not self.ended.done():
            self.changed.clear()
            if talk.allowed:
                await self.send(talk.next_out(talk.rng.choice(PIECES)))
            else:
                await self.changed.wait()
        if self.ended.done():
            self.ended.result()
            raise ConnectionError("the stream ended before TLS began")
        self.transport.pause_reading()
        watch.note_path(talk)
        secured = await asyncio.get_running_loop().start_tls(
            self.transport,
            self,
            handing.tls_context(talk.side),
            server_side=talk.side == "server",
            server_hostname="localhost" if talk.side == "client" else None,
            ssl_handshake_timeout=PATIENCE,
        )
        talk.secured = True
        talk.next_stage()
        self.transport = secured

    async def written(self) -> None:
        """Until the loop has written what was sent."""
        while self.transport.get_write_buffer_size() and not self.transport.is_closing():
            await asyncio.sleep(0.001)
        if self.talk.secured and self.talk.side == "server":  # the client goes first
            with contextlib.suppress(Exception):
                while not self.transport.is_closing():
                    await asyncio.sleep(0.001)


class Plain(Pump, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.take(data)


class Buffered(Pump, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> memoryview:
        length = self.talk.rng.choice([100, 5000, 65_536])
        # (asyncio's SSLProtocol cuts pieces off the buffer, so that it must be a view; and fills as much as it hints,
        # also before `start_tls` has returned.)
        above = self.talk.plan.barrier_turn is not None
        self.buffer = memoryview(bytearray(max(length, sizehint) if above else length))
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.take(self.buffer[:nbytes])


PROTOCOLS: dict[str, Callable[[Talk], Pump]] = {"protocol": Plain, "buffered": Buffered}


# ---- sock_* --------------------------------------------------------------------------------------------------


async def socks(talk: Talk, sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    end = _End(talk)

    async def send(data: bytes) -> None:
        await loop.sock_sendall(sock, data)
        talk.did_send(len(data))

    def finish() -> None:
        sock.shutdown(socket.SHUT_WR)

    async def receive() -> None:
        while not talk.eof:
            if talk.rng.random() < 0.5:
                data: bytes | memoryview = await loop.sock_recv(sock, talk.rng.choice(TAKES))
            else:
                buffer = bytearray(talk.rng.choice(TAKES))
                data = memoryview(buffer)[: await loop.sock_recv_into(sock, buffer)]
            if data:
                talk.took(data)
            else:
                talk.ended()
            end.news()

    try:
        await _both(receive(), end.send_all(send, finish))
    except handing.GivesUp:
        if talk.now.event == "abort-linger0":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, handing.LINGER_ZERO)
        raise
    finally:
        sock.close()


# ---- both sides ----------------------------------------------------------------------------------------------


async def reported(talk: Talk, body: Awaitable[None]) -> None:
    """Runs an end, and reports how it ended."""
    watch.talks.add(talk)
    task = asyncio.ensure_future(body)
    loop = asyncio.get_running_loop()
    talk.abandon = lambda: loop.call_soon_threadsafe(task.cancel)
    try:
        await task
        watch.note_path(talk)
        watch.report(talk, *watch.outcome(talk, None))
    except handing.GivesUp:
        watch.note_path(talk)
        watch.report(talk, "gave up")
    except (asyncio.CancelledError, Exception) as error:
        watch.note_path(talk)
        watch.report(talk, *watch.outcome(talk, error))
    finally:
        talk.handle = None


async def dial(talk: Talk, host: str, port: int, source: tuple[str, int] | None) -> None:
    """The client's end of a new connection. OSError if there is none."""
    loop = asyncio.get_running_loop()
    greeting = hello(talk)
    program = talk.now.program
    if program == "socks":
        sock = socket.socket()
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        talk.handle = sock

        async def with_greeting() -> None:
            await loop.sock_sendall(sock, greeting)
            await socks(talk, sock)

        await reported(talk, with_greeting())
    elif program == "streams":
        limit = talk.rng.choice([2**12, 2**16, 2**20])
        reader, writer = await asyncio.open_connection(host, port, limit=limit, local_addr=source)
        talk.handle = writer
        writer.write(greeting)
        await reported(talk, streams(talk, reader, writer))
    else:
        _, pump = await loop.create_connection(lambda: PROTOCOLS[program](talk), host, port, local_addr=source)
        pump.transport.write(greeting)
        await reported(talk, pump.run())


class Greeter(asyncio.Protocol):
    """A server's protocol until the greeting has come; the connection's own takes its place then."""

    transport: Any

    def __init__(self, features: Features, running: set[asyncio.Future[None]]) -> None:
        self.features, self.running = features, running
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) < HELLO.size:
            return
        talk = talk_of(self.data[: HELLO.size], self.features)
        rest = self.data[HELLO.size :]
        program = talk.now.program
        talk.handle = self.transport
        if program == "streams":
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader(limit=talk.rng.choice([2**12, 2**16, 2**20]), loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            self.transport.set_protocol(protocol)
            protocol.connection_made(self.transport)
            if rest:
                protocol.data_received(rest)
            writer = asyncio.StreamWriter(self.transport, protocol, reader, loop)
            body = streams(talk, reader, writer)
        else:
            pump = PROTOCOLS[program](talk)
            self.transport.set_protocol(pump)
            pump.connection_made(self.transport)
            if rest:
                pump.take(rest)
            body = pump.run()
        task = asyncio.ensure_future(reported(talk, body))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
