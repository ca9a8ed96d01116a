"""Echo clients of several libraries. Arguments: the loop (asyncio, uvloop, trio) and the ports as JSON.

Each client talks to each server; prints a digest of what each pair's conversation gave, and how many connections took
which path. With MOVES in the environment, a conversation goes on until its connection has moved: the threads that bring
the ends together run when the machine lets them.
"""

import asyncio
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

DEADLINE = 20  # seconds for one conversation
Send = Callable[[bytes], Awaitable[Any]]
Receive = Callable[[], Awaitable[bytes]]
BLOB = bytes(range(256)) * 8192


class Conversation:
    """What is said on one connection, whatever carries it: small messages answered one by one, then a large one while
    its beginning comes back, then the end of the stream."""

    before: "tuple[int, int] | None" = None
    """What was counted before the connection was made."""

    def __init__(self, send: Send, receive: Receive) -> None:
        self.send = send
        self.receive = receive
        self.seen = hashlib.sha256()

    async def hear(self, count: int) -> None:
        while count > 0:
            data = await self.receive()
            assert data, "the stream ended early"
            self.seen.update(data)
            count -= len(data)
        assert count == 0

    async def small(self) -> None:
        for number in range(500):
            message = b"%d " % number * (1 + number % 150)
            await self.send(message)
            await self.hear(len(message))

    async def until_moved(self) -> None:
        """What is said here is not in the digest."""
        ends = time.monotonic() + DEADLINE / 2
        while "MOVES" in os.environ and moved() == (self.before or (0,))[0] and time.monotonic() < ends:
            await self.send(b"more")
            missing = 4
            while missing:
                data = await self.receive()
                assert data, "the stream ended early"
                missing -= len(data)

    async def whole(self, half_close: "Callable[[], Awaitable[Any]] | None" = None) -> str:
        await self.small()
        await self.until_moved()
        sending = asyncio.ensure_future(self.send(BLOB))
        await self.hear(len(BLOB))
        await sending
        if half_close is not None:
            await half_close()
            assert not await self.receive()
        return self.seen.hexdigest()


async def with_streams(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    async def half_close() -> None:
        writer.write_eof()

    digest = await Conversation(send, lambda: reader.read(65536)).whole(half_close)
    writer.close()
    await writer.wait_closed()
    return digest


async def with_sockets(port: int) -> str:
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        into = bytearray(65536)

        async def receive() -> bytes:
            return bytes(into[: await loop.sock_recv_into(sock, into)])

        async def half_close() -> None:
            sock.shutdown(socket.SHUT_WR)

        return await Conversation(lambda data: loop.sock_sendall(sock, data), receive).whole(half_close)


async def with_anyio(port: int) -> str:
    import anyio

    async with await anyio.connect_tcp("127.0.0.1", port) as stream:

        async def receive() -> bytes:
            try:
                return await stream.receive()
            except anyio.EndOfStream:
                return b""

        return await Conversation(stream.send, receive).whole(stream.send_eof)


async def with_tornado(port: int) -> str:
    from tornado.tcpclient import TCPClient

    stream = await TCPClient().connect("127.0.0.1", port)
    digest = await Conversation(stream.write, lambda: stream.read_bytes(65536, partial=True)).whole()
    stream.close()
    return digest


CLIENTS = {"streams": with_streams, "sockets": with_sockets, "anyio": with_anyio, "tornado": with_tornado}


def counted() -> "tuple[int, int] | None":
    fastsock = sys.modules.get("fastsock")
    if fastsock is None:
        return None
    stats = fastsock.stats()
    return stats.connections_ring, stats.connections_tcp


def moved() -> int:
    return (counted() or (0,))[0]


async def all_clients(ports: dict[str, int]) -> dict[str, Any]:
    results = {}
    for server, port in ports.items():
        for name, client in CLIENTS.items():
            before = Conversation.before = counted()
            digest = await asyncio.wait_for(client(port), DEADLINE)
            after = counted()
            took = before and after and [after[0] - before[0], after[1] - before[1]]
            results[f"{name} to {server}"] = {"digest": digest, "took": took}
    return results


async def on_trio(ports: dict[str, int]) -> dict[str, Any]:
    import trio

    results = {}
    for server, port in ports.items():
        before = Conversation.before = counted()
        with trio.fail_after(DEADLINE):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream, trio.open_nursery() as nursery:
                conversation = Conversation(stream.send_all, stream.receive_some)
                await conversation.small()
                await conversation.until_moved()
                nursery.start_soon(stream.send_all, BLOB)
                await conversation.hear(len(BLOB))
        after = counted()
        took = before and after and [after[0] - before[0], after[1] - before[1]]
        results[f"trio to {server}"] = {"digest": conversation.seen.hexdigest(), "took": took}
    return results


def main(loop: str, ports: dict[str, int]) -> dict[str, Any]:
    if loop == "trio":
        import trio

        return trio.run(on_trio, ports)
    if loop == "uvloop":
        import uvloop

        return uvloop.run(all_clients(ports))
    return asyncio.run(all_clients(ports))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
