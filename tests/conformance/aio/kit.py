"""Loops, connections and protocols for the conformance kit.

A `World` is one loop with everything a test body needs. The same body runs on kernel TCP with an untouched loop, on a
connection that is on the ring before the body begins, and on one that moves while the body is at it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib
import socket
import ssl
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import uvloop
from harness.pairs import ON_UNIX_STREAMS, SECONDS, KernelSocket

import fastsock
from fastsock._native import libc_front

LOOPS = ("uvloop", "asyncio")
PATHS = {"kernel": None, "ring": 0, "midstream": 6}
"""move_after of each path; None: the loop without the asyncio layer."""

HOST = "127.0.0.1"
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
UNTOUCHED = {"uvloop": uvloop.Loop, "asyncio": asyncio.SelectorEventLoop}


def served() -> set[tuple[str, str]]:
    """The connections of this process that fastsock serves."""
    return {(one.local, one.peer) for one in libc_front.connections()}


class Recorder(asyncio.Protocol):
    """Writes down what its transport calls. Hooks: assign a function to `on_<callback>`, called with this protocol."""

    def __init__(self, keep_open: bool = False) -> None:
        self.keep_open = keep_open
        self.transport: Any = None
        self.data = bytearray()
        self.pieces = 0
        self.events: list[str] = []
        self.error: BaseException | None = None
        self.hooks: dict[str, Callable[[Any], object]] = {}

    def note(self, event: str) -> None:
        self.events.append(event)
        hook = self.hooks.get(event)
        if hook is not None:
            hook(self)

    def on(self, event: str, hook: Callable[[Any], object]) -> None:
        self.hooks[event] = hook

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.note("made")

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.data += data
        self.got()

    def got(self) -> None:
        self.pieces += 1
        hook = self.hooks.get("data")
        if hook is not None:
            hook(self)

    def eof_received(self) -> bool:
        self.note("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, error: BaseException | None) -> None:
        self.error = error
        self.note("lost")

    def forget_pieces(self) -> None:
        self.pieces = 0

    @property
    def lost(self) -> bool:
        return "lost" in self.events


class Buffered(asyncio.BufferedProtocol):
    """A BufferedProtocol that writes down what its transport calls."""

    def __init__(self, size: int = 4096, keep_open: bool = False) -> None:
        self._record = Recorder(keep_open)
        self.buffer = bytearray(size)
        self.hints: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)

    def connection_made(self, transport: Any) -> None:
        self._record.connection_made(transport)

    def get_buffer(self, hint: int) -> memoryview:
        self.hints.append(hint)
        self._record.note("get")
        return memoryview(self.buffer)

    def buffer_updated(self, count: int) -> None:
        assert 0 < count <= len(self.buffer)
        self._record.data += self.buffer[:count]
        self._record.got()

    def eof_received(self) -> bool:
        return self._record.eof_received()

    def pause_writing(self) -> None:
        self._record.pause_writing()

    def resume_writing(self) -> None:
        self._record.resume_writing()

    def connection_lost(self, error: BaseException | None) -> None:
        self._record.connection_lost(error)


class World:
    """One loop of one kind, on one path, in this process."""

    def __init__(self, loop_kind: str, path: str) -> None:
        self.loop_kind = loop_kind
        self.path = path
        self.problems: list[dict[str, Any]] = []
        """What call_exception_handler was told; a test that expects something takes it out."""
        self.loop: Any = None
        self._closers: list[Callable[[], Any]] = []

    # ---- running -----------------------------------------------------------------------------------------

    def new_loop(self) -> Any:
        loop = UNTOUCHED[self.loop_kind]() if self.path == "kernel" else fastsock.new_event_loop(self.loop_kind)
        loop.set_exception_handler(lambda _, context: self.problems.append(context))
        return loop

    def configured(self, **more: Any) -> contextlib.AbstractContextManager[Any]:
        after = PATHS[self.path]
        settings = {"move_after": after, **more}
        return contextlib.nullcontext() if after is None else fastsock.configure(**settings)

    @contextlib.contextmanager
    def running(self) -> Iterator[Callable[..., Any]]:
        """What runs a coroutine in the world's loop; afterwards it is cleaned up and closed."""

        def run(body: Coroutine[Any, Any, Any], seconds: float = 3 * SECONDS) -> Any:
            return loop.run_until_complete(asyncio.wait_for(body, seconds))

        before = served()
        with self.configured():
            self.loop = loop = self.new_loop()
            try:
                yield run
            finally:
                try:
                    loop.run_until_complete(self._clean_up())
                finally:
                    with warnings.catch_warnings():  # uvloop hangs when the warning about an open transport is an error
                        warnings.simplefilter("ignore", ResourceWarning)
                        loop.close()
                    if served() - before:
                        gc.collect()  # transports that nobody has closed
                    assert served() <= before

    def run(self, body: Coroutine[Any, Any, Any], seconds: float = 3 * SECONDS) -> Any:
        with self.running() as run:
            return run(body, seconds)

    async def _clean_up(self) -> None:
        for close in reversed(self._closers):
            close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_default_executor()
        for _ in range(5):
            await asyncio.sleep(0)

    # ---- making ------------------------------------------------------------------------------------------

    @property
    def socket(self) -> type[socket.socket]:
        """The class of sockets that a program here uses."""
        return KernelSocket if self.path == "kernel" else importlib.import_module("fastsock").socket

    async def server(self, factory: Callable[[], Any], host: Any = HOST, **options: Any) -> Any:
        server = await self.loop.create_server(factory, host, 0, **options)
        self._closers.append(server.close)
        return server

    def port(self, server: Any) -> int:
        return int(server.sockets[0].getsockname()[1])

    async def pair(
        self, near: Callable[[], Any] = Recorder, far: Callable[[], Any] = Recorder, settle: bool = True, **options: Any
    ) -> tuple[Any, Any]:
        """Two connected protocols: `near` connected, `far` was accepted. On the path "ring" they have moved."""
        accepted = self.loop.create_future()

        def made() -> Any:
            protocol = far()
            accepted.set_result(protocol)
            return protocol

        server, protocol = await (self._meet_by_path if ON_UNIX_STREAMS else self._meet_by_port)(near, made, **options)
        self._closers.append(lambda: protocol.lost or protocol.transport.abort())
        other = await accepted
        await self.until(lambda: other.transport is not None)
        self._closers.append(lambda: other.lost or other.transport.abort())
        server.close()
        if self.path == "ring" and settle:
            await self.move(protocol, other)
        return protocol, other

    async def _meet_by_port(self, near: Callable[[], Any], far: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
        """The server, and the protocol that has connected."""
        server = await self.server(far, **options)
        return server, (await self.loop.create_connection(near, HOST, self.port(server)))[1]

    async def _meet_by_path(self, near: Callable[[], Any], far: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
        with tempfile.TemporaryDirectory() as folder:
            server = await self.loop.create_unix_server(far, f"{folder}/socket", **options)
            self._closers.append(server.close)
            return server, (await self.loop.create_unix_connection(near, f"{folder}/socket"))[1]

    async def move(self, near: Any, far: Any) -> None:
        """Drives bytes both ways until both are on the ring, and makes them forget it."""
        while not self.on_ring(near, far):
            for sender, receiver in ((near, far), (far, near)):
                before = len(receiver.data)
                sender.transport.write(b"move")
                await self.until(lambda receiver=receiver, before=before: len(receiver.data) == before + 4)
        for protocol in (near, far):
            protocol.data.clear()
            del protocol.events[1:]
            protocol.forget_pieces()
            for name in ("hints",):
                getattr(protocol, name, []).clear()

    def on_ring(self, *protocols: Any) -> bool:
        both = fastsock.Path("ring", "both directions")
        return all(fastsock.path_of(protocol.transport) == both for protocol in protocols)

    async def check_path(self, near: Any, far: Any) -> None:
        """After the body's traffic: on the ring, except with the untouched loop."""
        if self.path == "kernel":
            assert near.transport.get_extra_info("fastsock") is None
            assert fastsock.path_of(near.transport).path == "tcp"
        else:
            await self.move(near, far)

    # ---- waiting -----------------------------------------------------------------------------------------

    async def until(self, predicate: Callable[[], Any], seconds: float = SECONDS) -> Any:
        limit = time.monotonic() + seconds
        iterations = 0
        while not (value := predicate()):
            assert time.monotonic() < limit, f"still not so after {seconds} s"
            iterations += 1
            await asyncio.sleep(0 if iterations < 20 else 0.0005)
        return value

    async def received(self, protocol: Any, count: int) -> bytes:
        """Exactly `count` bytes have come; takes them."""
        await self.until(lambda: len(protocol.data) >= count)
        assert len(protocol.data) == count
        data = bytes(protocol.data)
        protocol.data.clear()
        return data

    async def quiet(self, seconds: float = 0.02) -> None:
        """Time and iterations for something to happen that should not: a machine may stand still meanwhile."""
        await asyncio.sleep(seconds)
        for _ in range(10):
            await asyncio.sleep(0)

    def take_problems(self) -> list[dict[str, Any]]:
        problems, self.problems = self.problems, []
        return problems


def everywhere(body: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An async test body, run in its `world`. What the loop's exception handler is told fails it."""

    @functools.wraps(body)
    def test(world: World, **fixtures: Any) -> None:
        world.run(body(world, **fixtures))  # type: ignore[arg-type]
        assert world.problems == []

    return test
