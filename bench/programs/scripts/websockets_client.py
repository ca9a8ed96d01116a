"""usage: websockets_client.py PORT asyncio|uvloop|threads BYTES [CONNECTIONS]"""

import contextlib
import sys
from functools import partial
from typing import Any

import clock
from websockets.asyncio.client import connect
from websockets.sync.client import connect as connect_thread

kind, size, connections = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1
uri, message = f"ws://127.0.0.1:{sys.argv[1]}", b"x" * size


async def main() -> None:
    async with contextlib.AsyncExitStack() as stack:

        async def echoed(peer: Any) -> None:
            await peer.send(message)
            assert len(await peer.recv()) == size

        peers = [await stack.enter_async_context(connect(uri, compression=None)) for _ in range(connections)]
        await clock.repeat_tasks([partial(echoed, peer) for peer in peers])


if kind == "threads":
    with connect_thread(uri, compression=None) as peer:

        def one() -> None:
            peer.send(message)
            assert len(peer.recv()) == size

        clock.repeat(one)
else:
    clock.run(main(), kind)
