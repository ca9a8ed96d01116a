"""A client of servers with several workers. Prints one line of JSON.

`shares URL FILE`: keeps one worker busy, so that another has to accept; then is busy with both. What both say of
themselves.
`waits URL FILE`: is busy on one connection, then has one request under way until there is a file. Who answered.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

DEADLINE = 20  # seconds


class Connection:
    """A session with one connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1), timeout=aiohttp.ClientTimeout(total=DEADLINE)
        )

    async def get(self, path: str, **query: str) -> Any:
        async with self.session.get(self.url + path, params=query) as response:
            response.raise_for_status()
            return await response.json()

    async def work(self, moves: int) -> None:
        """Until so many of this process's connections have moved, if any can."""
        number, ends = 0, time.monotonic() + DEADLINE / 4
        while number < 100 or ("fastsock" in sys.modules and (moved() or 0) < moves and time.monotonic() < ends):
            number += 1
            body = b"%d" % number * 50
            async with self.session.post(self.url + "/echo", data=body) as response:
                assert await response.read() == body


def moved() -> "int | None":
    fastsock = sys.modules.get("fastsock")
    return fastsock.stats().connections_ring if fastsock else None


async def begun(file: Path) -> None:
    while not file.with_suffix(".begun").exists():
        await asyncio.sleep(0.005)


async def shares(url: str, file: Path) -> Any:
    first = Connection(url)
    pid = (await first.get("/about"))["pid"]
    blocked = asyncio.ensure_future(first.get("/block", until=str(file)))
    await begun(file)
    # With SO_REUSEPORT the kernel chooses the worker, be it the blocked one: one of many gets to the other.
    others = [Connection(url) for _ in range(16)]
    asked = {asyncio.ensure_future(other.get("/about")): other for other in others}
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    second = asked[done.pop()]
    file.touch()
    assert await blocked == pid
    await asyncio.gather(*asked)
    await asyncio.gather(first.work(2), second.work(2))
    said = [await first.get("/about"), await second.get("/about")]
    for connection in (first, *others):
        await connection.session.close()
    return [{"pid": worker["pid"], "ring": (worker["statistics"] or {}).get("ring")} for worker in said]


async def waits(url: str, file: Path) -> Any:
    connection = Connection(url)
    await connection.work(1)
    answer = await connection.get("/slow", until=str(file))
    await connection.session.close()
    return {"pid": answer, "ring": moved()}


what, url, file = sys.argv[1:]
print(json.dumps(asyncio.run(asyncio.wait_for({"shares": shares, "waits": waits}[what](url, Path(file)), DEADLINE))))
