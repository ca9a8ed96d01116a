"""Puts the files of a directory on the ASGI server, gets them back and checks them, with aiohttp.

An ordinary program; it does not know about fastsock.

    python examples/asgi_client.py 127.0.0.1:8000 docs

Needs aiohttp. Four tasks share its connection pool. Prints one line of JSON: files, bytes, and the files that came back
wrong. Ends with status 1 if there are such files.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import aiohttp

TASKS = 4


async def exchange(
    session: aiohttp.ClientSession, directory: Path, names: Iterator[str], digests: dict[str, str]
) -> int:
    """Puts and gets files until there are no more names. How many bytes were got."""
    total = 0
    for name in names:
        data = (directory / name).read_bytes()
        async with session.put(f"/files/{quote(name)}", data=data) as response:
            response.raise_for_status()
        async with session.get(f"/files/{quote(name)}") as response:
            response.raise_for_status()
            got = await response.read()
        digests[name] = hashlib.sha256(got).hexdigest()
        total += len(got)
    return total


async def talk(address: str, directory: Path) -> int:
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    digests: dict[str, str] = {}
    async with aiohttp.ClientSession(f"http://{address}") as session:
        remaining = iter(names)
        sizes = await asyncio.gather(*(exchange(session, directory, remaining, digests) for _ in range(TASKS)))
        async with session.get("/files") as response:
            served = await response.json()
    own = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}
    wrong = [name for name in names if not own[name] == digests[name] == served.get(name)]
    print(json.dumps({"files": len(names), "bytes": sum(sizes), "wrong": wrong}))
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("directory", type=Path, help="the files to put there")
    arguments = parser.parse_args()
    return asyncio.run(talk(arguments.address, arguments.directory))


if __name__ == "__main__":
    sys.exit(main())
