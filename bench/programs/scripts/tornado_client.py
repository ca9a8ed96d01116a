"""usage: tornado_client.py PORT http|echo [CONNECTIONS]"""

import asyncio
import sys
from functools import partial

import clock
from tornado.httpclient import AsyncHTTPClient
from tornado.iostream import IOStream
from tornado.tcpclient import TCPClient

port, kind = int(sys.argv[1]), sys.argv[2]


async def main() -> None:
    if kind == "http":
        client = AsyncHTTPClient()

        async def one() -> None:
            assert (await client.fetch(f"http://127.0.0.1:{port}/")).body

        await clock.repeat_tasks([one])
        return

    async def echoed(stream: IOStream) -> None:
        await stream.write(b"x" * 64)
        await stream.read_bytes(64)

    streams = [await TCPClient().connect("127.0.0.1", port) for _ in range(int(sys.argv[3]))]
    await clock.repeat_tasks([partial(echoed, stream) for stream in streams])


asyncio.run(main())
