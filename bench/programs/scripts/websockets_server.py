"""usage: websockets_server.py PORT asyncio|uvloop|threads"""

import asyncio
import sys
from typing import Any

import clock
from websockets.asyncio.server import serve
from websockets.sync.server import serve as serve_threads

port, kind = int(sys.argv[1]), sys.argv[2]


async def echo(peer: Any) -> None:
    async for message in peer:
        await peer.send(message)


async def main() -> None:
    async with serve(echo, "127.0.0.1", port, compression=None):
        await asyncio.get_running_loop().create_future()


def echo_thread(peer: Any) -> None:
    for message in peer:
        peer.send(message)


try:
    if kind == "threads":
        with serve_threads(echo_thread, "127.0.0.1", port, compression=None) as server:
            server.serve_forever()
    else:
        clock.run(main(), kind)
except KeyboardInterrupt:
    pass
