"""usage: httpx_async.py PORT CONNECTIONS asyncio|uvloop"""

import sys

import clock
import httpx

port, connections = int(sys.argv[1]), int(sys.argv[2])


async def main() -> None:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as client:

        async def one() -> None:
            assert (await client.get(f"http://127.0.0.1:{port}/item/7")).json()["id"] == 7

        await clock.repeat_tasks([one] * connections)


clock.run(main(), sys.argv[3])
