"""TLS above our transports: both sides, start_tls, and what can go wrong."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.pairs import payload
from harness.processes import running

import fastsock
from conformance.aio.kit import HOST, Contexts, Recorder, World, everywhere

if sys.version_info < (3, 11):

    @pytest.fixture(autouse=True)
    def collected() -> Iterator[None]:
        """asyncio's own transport above TLS warns that it was not closed, also when its handshake failed."""
        yield
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def secured(world: World, contexts: Contexts, **options: Any) -> tuple[Recorder, Recorder]:
    """Two protocols above TLS."""
    made: list[Recorder] = []

    def factory() -> Recorder:
        made.append(Recorder())
        return made[-1]

    server = await world.server(factory, ssl=contexts[0])
    options = {"server_hostname": "localhost", **options}
    _, near = await world.loop.create_connection(Recorder, HOST, world.port(server), ssl=contexts[1], **options)
    await world.until(lambda: made and made[0].transport is not None)
    server.close()
    for protocol in (near, made[0]):
        world._closers.append(lambda protocol=protocol: protocol.lost or protocol.transport.abort())
    return near, made[0]


async def exchange(world: World, near: Recorder, far: Recorder, rounds: int = 40) -> None:
    for number in range(rounds):
        data = payload(100 + number * 50, number)
        near.transport.write(data)
        assert await world.received(far, len(data)) == data
        far.transport.write(data)
        assert await world.received(near, len(data)) == data
    if world.path != "kernel":
        while not fastsock.path_of(near.transport).path == fastsock.path_of(far.transport).path == "ring":
            near.transport.write(b"move")
            await world.received(far, 4)
            far.transport.write(b"move")
            await world.received(near, 4)


@everywhere
async def test_both_sides(world: World, contexts: Contexts) -> None:
    seen: list[Any] = []
    contexts[0].sni_callback = lambda _, name, __: seen.append(name)
    for context in contexts:
        context.set_alpn_protocols(["h2", "http/1.1"])
    near, far = await secured(world, contexts)
    await exchange(world, near, far)
    assert seen == ["localhost"]
    for protocol, context in zip((far, near), contexts, strict=True):
        info = protocol.transport.get_extra_info
        assert isinstance(info("ssl_object"), ssl.SSLObject)
        assert info("ssl_object").selected_alpn_protocol() == "h2"
        assert info("sslcontext") is context
        assert info("cipher")
        assert info("peername")
        assert info("socket").fileno() > 0
    assert near.transport.get_extra_info("peercert")["subject"] == ((("commonName", "localhost"),),)
    data = payload(2 << 20)
    near.transport.write(data)
    assert await world.received(far, len(data)) == data
    near.transport.close()
    await world.until(lambda: near.lost and far.lost)
    assert near.error is None
    assert far.error is None


def in_plain_text() -> Recorder:
    protocol = Recorder()
    protocol.on("made", lambda protocol: protocol.transport.write(b"220 plain text\r\n" * 5))
    return protocol


# The server: its protocol, and whether above TLS; the client: what it is told, and what it raises.
HANDSHAKES: dict[str, tuple[Any, bool, dict[str, Any], Any]] = {
    "not trusted": (Recorder, True, {"ssl": ssl.create_default_context()}, ssl.SSLCertVerificationError),
    "another name": (Recorder, True, {"server_hostname": "elsewhere"}, ssl.SSLCertVerificationError),
    "plain text": (in_plain_text, False, {}, (ssl.SSLError, ConnectionError)),
    "silence": (Recorder, False, {"ssl_handshake_timeout": 0.05}, (ConnectionAbortedError, asyncio.TimeoutError)),
}


@pytest.mark.parametrize("what", HANDSHAKES)
@everywhere
async def test_a_handshake_that_fails(world: World, contexts: Contexts, what: str) -> None:
    factory, above_tls, options, error = HANDSHAKES[what]
    made: list[Recorder] = []
    server = await world.server(lambda: made.append(factory()) or made[-1], ssl=contexts[0] if above_tls else None)
    options = {"ssl": contexts[1], "server_hostname": "localhost", **options}
    with pytest.raises(error):
        await world.loop.create_connection(Recorder, HOST, world.port(server), **options)
    if above_tls:
        await world.quiet()
        world.take_problems()  # the server's side: SSLError, reported or not, by version and loop
    else:
        await world.until(lambda: made and made[0].lost)


@everywhere
async def test_start_tls_cancelled(world: World, contexts: Contexts) -> None:
    near, far = await world.pair()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(
            world.loop.start_tls(near.transport, near, contexts[1], server_hostname="localhost"), 0.05
        )
    await world.until(lambda: far.lost)


PEER = """
    import asyncio, ssl
    from conformance.aio.kit import Recorder, World

    async def main():
        context = ssl.create_default_context(cafile=sys.argv[4])
        factory = lambda: Recorder(keep_open=True)
        _, protocol = await loop.create_connection(
            factory, "127.0.0.1", int(sys.argv[3]), ssl=context, server_hostname="localhost"
        )
        world.loop = loop
        while not protocol.data.endswith(b"end"):
            before = len(protocol.data)
            await world.until(lambda: len(protocol.data) > before)
            kernel = world.path == "kernel"
            protocol.transport.write(b"t" if kernel or fastsock.path_of(protocol.transport).path != "ring" else b"r")
        os._exit(0)

    world = World(sys.argv[1], sys.argv[2])
    with world.configured():
        loop = world.new_loop()
        loop.run_until_complete(main())
"""
"""Answers each message by where its transport is, and ends by os._exit after "end"."""


@pytest.mark.parametrize("how", ["os._exit", "SIGKILL"])
@everywhere
async def test_a_process_that_ends_without_close_notify_is_the_end_of_the_stream(
    world: World, contexts: Contexts, certificate: Path, how: str
) -> None:
    """The protocol above TLS hears what it hears on kernel TCP, and no error of a size."""
    made: list[Recorder] = []

    def factory() -> Recorder:
        made.append(Recorder())
        return made[-1]

    server = await world.server(factory, ssl=contexts[0])
    with running(PEER, world.loop_kind, world.path, world.port(server), certificate) as program:
        await world.until(lambda: made and made[0].transport is not None, seconds=20)  # an interpreter starts
        near = made[0]
        world._closers.append(lambda: near.lost or near.transport.abort())
        answer, rounds = b"", 0
        while rounds < 10 or (world.path != "kernel" and not (answer == b"r" and world.on_ring(near))):
            near.transport.write(b"move")
            answer, rounds = await world.received(near, 1), rounds + 1
        if how == "os._exit":
            near.transport.write(b"end")
        else:
            program.kill()
        await world.until(lambda: near.lost)
    assert near.error is None
    assert near.events == (["made", "eof", "lost"] if world.loop_kind == "asyncio" else ["made", "lost"])
