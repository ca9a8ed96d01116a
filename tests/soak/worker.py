"""A worker: a server or a client of one kind, or the helper that others pass connections on to.

usage: fastsock run -m tests.soak.worker server|client|helper JSON
The driver stops a worker by the line "stop" on its stdin; "cap BYTES" is the other one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
import traceback
from typing import Any

from tests.soak import ends, handing, watch
from tests.soak.greeting import HELLO, hello, talk_of
from tests.soak.plan import Features, Plan
from tests.soak.stream import Talk

STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
FEATURES = Features(
    fork=os.environ.get("CHAOS_FORK") != "0",
    urgent=os.environ.get("CHAOS_URGENT") != "0",
    programs=tuple(os.environ.get("CHAOS_PROGRAMS", "").split()),
    size=int(os.environ.get("CHAOS_SIZE", Features.size)),
)
stopped = threading.Event()


def obey() -> None:
    """The driver's commands."""
    for line in sys.stdin:
        match line.split():
            case ["stop"]:
                break
            case ["cap", cap]:
                import fastsock

                fastsock.patch(memory_cap=int(cap))
    stopped.set()


def bye() -> None:
    """The last word: what this process still holds."""
    watch.wait_for_talks(watch.LONGEST)
    until = time.monotonic() + 10
    left = watch.left_in_process()
    while (left["sockets"] or left["endpoints"]) and time.monotonic() < until:
        time.sleep(0.1)
        left = watch.left_in_process()
    if left["sockets"] or left["endpoints"]:
        watch.dump()
    watch.say("bye", **left)


# ---- servers -------------------------------------------------------------------------------------------------


def listen(host: str, port: int) -> socket.socket:
    """A listener. (A forked holder of the last server's may still keep the port for a moment.)"""
    until = time.monotonic() + watch.PATIENCE
    while True:
        try:
            return socket.create_server((host, port), backlog=256)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
            time.sleep(0.1)


def answer(sock: socket.socket) -> None:
    """The server's end of a connection of sockets."""
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(sock.close)
            sock.settimeout(watch.PATIENCE)
            data = b""
            while len(data) < HELLO.size:
                piece = sock.recv(HELLO.size - len(data))
                if not piece:
                    return
                data += piece
            stack.pop_all()
    except OSError:
        return
    ends.run(talk_of(data, FEATURES), sock)


def serve_sockets(listener: socket.socket) -> None:
    handing.open_sockets.add(listener)
    listener.settimeout(0.2)
    while not stopped.is_set():
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError as error:
            if error.errno not in STARVED:
                raise
            time.sleep(0.05)
            continue
        handing.open_sockets.add(sock)
        threading.Thread(target=answer, args=(sock,), daemon=True).start()
    listener.close()


async def serve_loop(listener: socket.socket) -> None:
    from tests.soak.loops import Greeter

    running: set[Any] = set()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_loop_trouble)
    server = await loop.create_server(lambda: Greeter(FEATURES, running), sock=listener)
    while not stopped.is_set():
        await asyncio.sleep(0.05)
    server.close()
    while running:
        await asyncio.wait(set(running), timeout=1)
    await asyncio.sleep(0.1)


def _loop_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in STARVED:
        return  # from accept, under a limit
    trace = "".join(traceback.format_exception(error)) if error else ""
    watch.say("trouble", detail=f"{context.get('message')}: {trace[-1800:]}")


def serve(kind: str, host: str, port: int) -> None:
    listener = listen(host, port)
    watch.say("ready")
    if kind == "sockets":
        serve_sockets(listener)
    elif kind == "trio":
        import trio

        from tests.soak import trios

        listener.setblocking(False)
        trio.run(trios.serve, listener, FEATURES, stopped.is_set)
    else:
        listener.setblocking(False)
        run_loop(kind, serve_loop(listener))


def run_loop(kind: str, body: Any) -> None:
    if kind == "uvloop":
        import uvloop

        uvloop.run(body)
    else:
        asyncio.run(body)


# ---- clients -------------------------------------------------------------------------------------------------


class Lane:
    """One after the other, connections of a client, drawn from its seed."""

    def __init__(self, kind: str, seed: str, servers: list[Any], host: str) -> None:
        self.kind, self.servers, self.host = kind, servers, host
        self.rng = random.Random(seed)
        self.failed = 0

    def next_talk(self) -> tuple[Talk, str, int, tuple[str, int] | None]:
        """The next connection: its end, the server's address, and its own or None."""
        rng = self.rng
        server = rng.choice(self.servers)
        key, serial = rng.getrandbits(48), rng.getrandbits(64)
        plan = Plan(int(os.environ.get("CHAOS_KEY") or key), (self.kind, server["kind"]), FEATURES)
        source = (self.host, rng.randrange(10_240, 19_000)) if rng.random() < 0.4 else None
        talk = Talk(plan, "client", {"serial": serial})
        self.pause = 0.02 if rng.random() < 0.05 else 0
        watch.say("begin", serial=serial, key=plan.key, to=server["slot"], started=talk.started)
        return talk, server["host"], server["port"], source

    def refused(self, talk: Talk, error: OSError) -> float:
        """No connection: the server is being started again, or there are no descriptors. Seconds to wait."""
        watch.talks.discard(talk)
        watch.say("refused", serial=talk.serial, error=repr(error))
        return 0.05


def connect(talk: Talk, host: str, port: int, source: tuple[str, int] | None) -> socket.socket:
    rng = talk.rng
    sock = socket.socket()
    try:
        sock.settimeout(watch.PATIENCE)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if source:
            sock.bind(source)
        if rng.random() < 0.2:
            sock.setsockopt(socket.SOL_SOCKET, rng.choice([socket.SO_RCVBUF, socket.SO_SNDBUF]), 16384)
        sock.connect((host, port))
        sock.settimeout(None)
        if rng.random() < 0.3:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def lane_of_sockets(lane: Lane) -> None:
    while not stopped.is_set():
        talk, host, port, source = lane.next_talk()
        try:
            sock = connect(talk, host, port, source)
        except OSError as error:
            time.sleep(lane.refused(talk, error))
            continue
        handing.open_sockets.add(sock)
        try:
            sock.sendall(hello(talk))
        except OSError as error:
            sock.close()
            watch.report(talk, *watch.outcome(talk, error))
            continue
        ends.run(talk, sock)
        time.sleep(lane.pause)


async def lane_of_loop(lane: Lane) -> None:
    from tests.soak.loops import dial

    asyncio.get_running_loop().set_exception_handler(_loop_trouble)
    while not stopped.is_set():
        talk, host, port, source = lane.next_talk()
        try:
            await dial(talk, host, port, source)
        except OSError as error:
            await asyncio.sleep(lane.refused(talk, error))
        await asyncio.sleep(lane.pause)


async def lane_of_trio(lane: Lane) -> None:
    import trio

    from tests.soak.trios import dial

    while not stopped.is_set():
        talk, host, port, source = lane.next_talk()
        try:
            await dial(talk, host, port, source)
        except (OSError, trio.BrokenResourceError) as error:
            await trio.sleep(lane.refused(talk, OSError(repr(error))))
        await trio.sleep(lane.pause)


def be_client(kind: str, seed: str, servers: list[Any], host: str, lanes: int) -> None:
    all_lanes = [Lane(kind, f"{seed} {number}", servers, host) for number in range(lanes)]
    watch.say("ready")
    if kind == "sockets":
        threads = [threading.Thread(target=lane_of_sockets, args=(lane,)) for lane in all_lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not (stopped.is_set() and not watch.talks):
                thread.join(0.5)
            thread.join(2)
    elif kind == "trio":
        import trio

        async def all_of_trio() -> None:
            async with trio.open_nursery() as nursery:
                for lane in all_lanes:
                    nursery.start_soon(lane_of_trio, lane)

        trio.run(all_of_trio)
    else:

        async def all_of_loop() -> None:
            await asyncio.gather(*map(lane_of_loop, all_lanes))
            await asyncio.sleep(0.1)

        run_loop(kind, all_of_loop())


# ---- the helper ----------------------------------------------------------------------------------------------


def help_others(fd: int) -> None:
    """Goes on with connections that are passed on to it."""
    channel = socket.socket(fileno=fd)
    watch.say("helper")
    while received := handing.receive_passed(channel):
        (key, kinds, side, place), number = received
        talk = Talk(Plan(key, kinds, FEATURES), side, place)
        watch.talks.add(talk)  # before its thread does: there may be no more to come
        sock = socket.socket(fileno=number)
        handing.open_sockets.add(sock)
        threading.Thread(target=ends.run, args=(talk, sock), daemon=True).start()
    watch.wait_for_talks(watch.LONGEST)


def main() -> None:
    role, words = sys.argv[1], json.loads(sys.argv[2])
    watch.open_for_dumps()
    watch.start_watching()
    tempfile.gettempdir()  # it looks for one by making a file, which near a limit of descriptors tells the wrong story
    if role == "helper":
        help_others(words)
    else:
        threading.Thread(target=obey, daemon=True).start()
        if role == "server":
            serve(**words)
        else:
            be_client(**words)
        handing.let_helper_go()
        bye()
    watch.close_dumps()
    os._exit(0)  # threads of connections that hang do not keep it


if __name__ == "__main__":
    main()
