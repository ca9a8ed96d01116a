"""usage: aiohttp_client.py PORT CONNECTIONS asyncio|uvloop [once]     once: a connection for each request"""

import sys

import aiohttp
import clock

port, connections, once = int(sys.argv[1]), int(sys.argv[2]), "once" in sys.argv[4:]


async def main() -> None:
    connector = aiohttp.TCPConnector(limit=connections, force_close=once)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one() -> None:
            async with session.get(f"http://127.0.0.1:{port}/") as response:
                assert await response.read()

        await clock.repeat_tasks([one] * connections)


clock.run(main(), sys.argv[3])
