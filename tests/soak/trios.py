"""trio's program: one task receives, another one sends; TLS by trio's own stream."""

from __future__ import annotations

import socket
from typing import Any

import trio

from tests.soak import handing, watch
from tests.soak.greeting import HELLO, hello, talk_of
from tests.soak.loops import PIECES, TAKES
from tests.soak.plan import Features
from tests.soak.stream import Talk


async def _carry(talk: Talk, stream: Any) -> None:
    """One stage: to its event, or to the end of both streams."""
    changed = trio.Event()
    gave_up = False

    def look() -> None:
        nonlocal gave_up
        if talk.at_event and (talk.now.event or "").startswith("abort"):
            gave_up = True
            nursery.cancel_scope.cancel()

    async def send() -> None:
        nonlocal changed
        while not talk.shut and not talk.stage_over:
            if talk.allowed:
                data = talk.next_out(talk.rng.choice(PIECES))
                await stream.send_all(data)
                talk.did_send(len(data))
            elif talk.sent_all:
                await stream.send_eof()
                talk.shut = True
                talk.moved_on()
            elif talk.eof:
                return
            else:
                changed = trio.Event()
                await changed.wait()
        look()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while talk.takes and not talk.stage_over:
            data = await stream.receive_some(min(talk.rng.choice(TAKES), talk.most_in))
            if data:
                talk.took(data)
            else:
                talk.ended()
            changed.set()
            look()
    if gave_up:
        raise handing.GivesUp


async def _run(talk: Talk, stream: trio.SocketStream) -> None:
    layer: Any = stream
    try:
        if talk.now.event == "tls":
            await _carry(talk, stream)
            if not talk.at_event:
                raise ConnectionError("the stream ended before TLS began")
            watch.note_path(talk)
            context = handing.tls_context(talk.side)
            layer = trio.SSLStream(
                stream, context, server_hostname="localhost", server_side=talk.side == "server", https_compatible=True
            )
            await layer.do_handshake()
            talk.secured = True
            talk.next_stage()
        await _carry(talk, layer)
        if talk.secured and talk.side == "server":  # the client goes first
            try:
                await layer.receive_some(1)
            except trio.BrokenResourceError:
                pass
    except handing.GivesUp:
        if talk.now.event == "abort-linger0":
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, handing.LINGER_ZERO)
        raise
    finally:
        watch.note_path(talk)
        await trio.aclose_forcefully(layer)


def _flat(error: BaseException) -> BaseException:
    """The error itself, out of the groups of a nursery, and the system's out of trio's."""
    while hasattr(error, "exceptions"):
        error = error.exceptions[0]
    if isinstance(error, (trio.BrokenResourceError, trio.ClosedResourceError)):
        return ConnectionError(f"{error!r} from {error.__cause__!r}")
    return error


async def reported(talk: Talk, stream: trio.SocketStream) -> None:
    """Runs an end, and reports how it ended."""
    watch.talks.add(talk)
    talk.handle = stream.socket._sock
    scope = trio.CancelScope()
    token = trio.lowlevel.current_trio_token()
    talk.abandon = lambda: token.run_sync_soon(scope.cancel)
    try:
        with scope:
            await _run(talk, stream)
        watch.report(talk, *watch.outcome(talk, None))
    except BaseException as error:
        error = _flat(error)
        if isinstance(error, handing.GivesUp):
            watch.report(talk, "gave up")
        else:
            watch.report(talk, *watch.outcome(talk, error))
        if not isinstance(error, Exception):
            raise
    finally:
        talk.handle = None


async def dial(talk: Talk, host: str, port: int, source: tuple[str, int] | None) -> None:
    sock = trio.socket.socket()
    try:
        if source:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await sock.bind(source)
        await sock.connect((host, port))
    except BaseException:
        sock.close()
        raise
    stream = trio.SocketStream(sock)
    await stream.send_all(hello(talk))
    await reported(talk, stream)


async def answer(stream: trio.SocketStream, features: Features) -> None:
    """The server's end."""
    data = b""
    try:
        while len(data) < HELLO.size:
            piece = await stream.receive_some(HELLO.size - len(data))
            if not piece:
                break
            data += piece
    except trio.BrokenResourceError:
        pass
    if len(data) == HELLO.size:
        await reported(talk_of(data, features), stream)
    else:
        await trio.aclose_forcefully(stream)


async def serve(sock: socket.socket, features: Features, stopped: Any) -> None:
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))

    async def handler(stream: trio.SocketStream) -> None:
        await answer(stream, features)

    async with trio.open_nursery() as handlers, trio.open_nursery() as accepting:

        async def stop() -> None:
            while not stopped():
                await trio.sleep(0.05)
            accepting.cancel_scope.cancel()

        accepting.start_soon(stop)
        await trio.serve_listeners(handler, [listener], handler_nursery=handlers)
