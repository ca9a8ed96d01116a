"""WebSockets in rooms, on several uvicorn workers: what one socket sends, all sockets of its room get, whichever worker
has them. The workers pass it on by a group of fastsock, or by Redis pub/sub.

    FANOUT_BY=group uvicorn --app-dir examples fanout_server:app --workers 4
    FANOUT_BY=redis FANOUT_REDIS=/run/redis.sock uvicorn --app-dir examples fanout_server:app --workers 4

Needs uvicorn, starlette and websockets; for Redis the package redis. `ws://HOST:PORT/rooms/NAME` is a room; the first
message of a worker there is its process id. `ws://HOST:PORT/burst` takes `ROOM COUNT SIZE`, and publishes as many
messages to the room, as an event source in a worker would. examples/fanout.py measures both ways.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

NAME = os.environ.get("FANOUT_NAME", "fan-out example")
rooms: dict[str, set[WebSocket]] = defaultdict(set)


class ByGroup:
    """A worker that is slow holds the publishers, and loses nothing."""

    def __init__(self) -> None:
        from fastsock import AsyncGroup

        self.group = AsyncGroup(NAME, slow="block", max_message=1 << 20)

    async def publish(self, data: bytes) -> None:
        await self.group.send(data)

    async def messages(self) -> AsyncIterator[bytes]:
        async for message in self.group:
            yield bytes(message)

    async def close(self) -> None:
        self.group.close()


class ByRedis:
    def __init__(self) -> None:
        from redis.asyncio import Redis

        self.redis = Redis(unix_socket_path=os.environ["FANOUT_REDIS"])
        self.pubsub = self.redis.pubsub()

    async def publish(self, data: bytes) -> None:
        await self.redis.publish(NAME, data)

    async def messages(self) -> AsyncIterator[bytes]:
        await self.pubsub.subscribe(NAME)
        async for message in self.pubsub.listen():
            if message["type"] == "message":
                yield message["data"]

    async def close(self) -> None:
        await self.pubsub.aclose()
        await self.redis.aclose()


bus: Any = None


async def deliver() -> None:
    async for data in bus.messages():
        room, _, text = data.decode().partition("\n")
        for socket in list(rooms.get(room, ())):
            try:
                await socket.send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                rooms[room].discard(socket)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    global bus
    bus = ByRedis() if os.environ.get("FANOUT_BY") == "redis" else ByGroup()
    delivering = asyncio.create_task(deliver())
    yield
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    await bus.close()


async def room(socket: WebSocket) -> None:
    name = socket.path_params["name"]
    await socket.accept()
    await socket.send_text(str(os.getpid()))
    rooms[name].add(socket)
    try:
        while True:
            await bus.publish(f"{name}\n{await socket.receive_text()}".encode())
    except WebSocketDisconnect:
        rooms[name].discard(socket)


async def burst(socket: WebSocket) -> None:
    await socket.accept()
    try:
        while True:
            name, count, size = (await socket.receive_text()).split()
            data = f"{name}\n{'x' * int(size)}".encode()
            for _ in range(int(count)):
                await bus.publish(data)
            await socket.send_text("published")
    except WebSocketDisconnect:
        pass


app = Starlette(routes=[WebSocketRoute("/rooms/{name}", room), WebSocketRoute("/burst", burst)], lifespan=lifespan)
