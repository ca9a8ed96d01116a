"""HTTP and WebSocket clients: the same talk with every library that is named, over the connection pool it has.

Arguments: the URL, `asyncio` or `uvloop`, then libraries. Prints one line of JSON: for each library a digest of what it
got, and how many connections of this process took which path meanwhile (null without fastsock).
"""

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

DEADLINE = 20  # seconds for one library
Post = Callable[[str, Any], Awaitable[bytes]]
Get = Callable[[str], Awaitable[bytes]]


def body(number: int, size: int) -> bytes:
    return bytes((number + i) % 251 for i in range(min(size, 251))) * (size // 251 + 1)


async def pieces() -> AsyncIterator[bytes]:
    for number in range(50):
        yield body(number, 700)


async def talk(post: Post, get: Get) -> str:
    """Keep-alive requests one after the other, several at once, large and streamed bodies: digest of the answers."""
    seen = hashlib.sha256()
    for number in range(60):
        seen.update(await post("/echo", body(number, 10 * number)))
    for size in (0, 1, 70_000, 1_500_000):
        answer = await post("/echo", body(size, size)[:size])
        assert len(answer) == size, (len(answer), size)
        seen.update(answer)
    for answer in await asyncio.gather(*(several(post, number) for number in range(4))):
        seen.update(answer)
    seen.update(await post("/echo", pieces()))
    streamed = await get("/stream/300")
    assert len(streamed) == 300_000
    seen.update(streamed)
    return seen.hexdigest()


async def several(post: Post, first: int) -> bytes:
    return b"".join([await post("/echo", body(first + number, 500)) for number in range(15)])


async def with_aiohttp(url: str) -> str:
    import aiohttp

    async with aiohttp.ClientSession() as session:

        async def post(path: str, data: Any) -> bytes:
            async with session.post(url + path, data=data) as response:
                response.raise_for_status()
                return await response.read()

        async def get(path: str) -> bytes:
            async with session.get(url + path) as response:
                response.raise_for_status()
                return await response.read()

        digest = await talk(post, get)
        ends = time.monotonic() + DEADLINE / 2  # (what is said here is not in the digest)
        while "MOVES" in os.environ and (now := counted()) and now[0] < BEFORE[-1] + 2 and time.monotonic() < ends:
            await asyncio.gather(*(several(post, number) for number in range(4)))
        return digest


async def with_httpx(url: str) -> str:
    import httpx

    async with httpx.AsyncClient(timeout=DEADLINE) as client:

        async def post(path: str, data: Any) -> bytes:
            response = await client.post(url + path, content=data)
            response.raise_for_status()
            return response.content

        async def get(path: str) -> bytes:
            async with client.stream("GET", url + path) as response:
                response.raise_for_status()
                return b"".join([piece async for piece in response.aiter_bytes()])

        return await talk(post, get)


async def with_tornado(url: str) -> str:
    from tornado.httpclient import AsyncHTTPClient

    client = AsyncHTTPClient()  # a connection for each request

    async def get(path: str) -> bytes:
        return (await client.fetch(url + path)).body

    seen = hashlib.sha256()
    for _ in range(3):
        seen.update(await get("/stream/2000"))
    client.close()
    return seen.hexdigest()


BEFORE = [0]
"""Connections that had moved before each library began."""


async def converse(send: Callable[[Any], Awaitable[None]], receive: Callable[[], Awaitable[Any]]) -> str:
    """Messages of a WebSocket, with answers awaited one by one and then many on their way."""
    seen = hashlib.sha256()
    messages: list[str | bytes] = [f"message {number}" for number in range(60)]
    messages += [body(number, 300 * number) for number in range(40)] + [body(0, 600_000)]
    for message in messages:
        await send(message)
        assert await receive() == message
    await until_moved(send, receive)
    for _ in range(2):
        sending = asyncio.ensure_future(send_all(send, messages))
        for message in messages:
            answer = await receive()
            assert answer == message
            seen.update(answer if isinstance(answer, bytes) else answer.encode())
        await sending
    return seen.hexdigest()


async def until_moved(send: Callable[[Any], Awaitable[None]], receive: Callable[[], Awaitable[Any]]) -> None:
    """What is said here is not in the digest: with MOVES in the environment, until the connection has moved."""
    ends = time.monotonic() + DEADLINE / 2
    while "MOVES" in os.environ and (now := counted()) and now[0] == BEFORE[-1] and time.monotonic() < ends:
        await send("more")
        assert await receive() == "more"


async def send_all(send: Callable[[Any], Awaitable[None]], messages: list[Any]) -> None:
    for message in messages:
        await send(message)


async def with_websockets(url: str) -> str:
    import websockets.asyncio.client as websockets

    async with websockets.connect(url.replace("http", "ws") + "/talk", max_size=None, compression=None) as socket:
        return await converse(socket.send, socket.recv)


async def with_aiohttp_ws(url: str) -> str:
    import aiohttp

    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        socket = await stack.enter_async_context(session.ws_connect(url + "/talk", max_msg_size=0))

        async def send(message: Any) -> None:
            await (socket.send_bytes(message) if isinstance(message, bytes) else socket.send_str(message))

        async def receive() -> Any:
            return (await socket.receive()).data

        return await converse(send, receive)


LIBRARIES = {
    "aiohttp": with_aiohttp,
    "httpx": with_httpx,
    "tornado": with_tornado,
    "websockets": with_websockets,
    "aiohttp_ws": with_aiohttp_ws,
}


def counted() -> "tuple[int, int] | None":
    fastsock = sys.modules.get("fastsock")
    if fastsock is None:
        return None
    stats = fastsock.stats()
    return stats.connections_ring, stats.connections_tcp


async def main(url: str, names: list[str]) -> None:
    results = {}
    for name in names:
        before = counted()
        BEFORE.append(before[0] if before else 0)
        digest = await asyncio.wait_for(LIBRARIES[name](url), DEADLINE)
        after = counted()
        took = None
        if before is not None and after is not None:
            took = {"ring": after[0] - before[0], "tcp": after[1] - before[1]}
        results[name] = {"digest": digest, "took": took}
    print(json.dumps(results))


if __name__ == "__main__":
    if sys.argv[2] == "uvloop":
        import uvloop

        uvloop.run(main(sys.argv[1], sys.argv[3:]))
    else:
        asyncio.run(main(sys.argv[1], sys.argv[3:]))
