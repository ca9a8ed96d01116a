"""usage: redis_client.py PORT|PATH BYTES | redis_client.py PORT BYTES CONNECTIONS      the latter by redis.asyncio"""

import asyncio
import sys

import clock
import redis
import redis.asyncio

path, value = sys.argv[1] if "/" in sys.argv[1] else "", b"x" * int(sys.argv[2])
port = 0 if path else int(sys.argv[1])


async def main(connections: int) -> None:
    client = redis.asyncio.Redis(host="127.0.0.1", port=port)
    await client.set("key", value)

    async def one() -> None:
        assert await client.get("key") == value

    await clock.repeat_tasks([one] * connections)
    await client.aclose()


if len(sys.argv) > 3:
    asyncio.run(main(int(sys.argv[3])))
else:
    client = redis.Redis(unix_socket_path=path) if path else redis.Redis(host="127.0.0.1", port=port)
    client.set("key", value)

    def one() -> None:
        assert client.get("key") == value

    clock.repeat(one)
