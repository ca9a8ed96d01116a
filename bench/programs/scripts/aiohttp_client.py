"""usage: aiohttp_client.py PORT CONNECTIONS asyncio|uvloop [once | PATH]     once: a connection for each request"""

import sys

import aiohttp
import clock

port, connections, word = int(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[4:])
once, url = word == "once", f"http://127.0.0.1:{port}{word if word.startswith('/') else '/'}"


async def main() -> None:
    connector = aiohttp.TCPConnector(limit=connections, force_close=once)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one() -> None:
            async with session.get(url) as response:
                assert response.status == 200
                assert await response.read()

        await clock.repeat_tasks([one] * connections)


clock.run(main(), sys.argv[3])
