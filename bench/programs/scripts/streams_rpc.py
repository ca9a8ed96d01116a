"""usage: streams_rpc.py server PORT | client PORT CALLERS      calls as lines of JSON, over asyncio's streams"""

import asyncio
import json
import sys
from contextlib import suppress

role, port = sys.argv[1], int(sys.argv[2])


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while line := await reader.readline():
            call = json.loads(line)
            result = {"id": call["id"], "sum": sum(call["numbers"])}
            writer.write(json.dumps(result).encode() + b"\n")
            await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


class Caller:
    """A connection with one call at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.calls = reader, writer, 0

    async def call(self) -> None:
        self.calls += 1
        self.writer.write(json.dumps({"id": self.calls, "numbers": [1, 2, 3]}).encode() + b"\n")
        assert json.loads(await self.reader.readline()) == {"id": self.calls, "sum": 6}


async def drive(callers: int) -> None:
    import clock

    made = [Caller(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(callers)]
    await clock.repeat_tasks([caller.call for caller in made])


try:
    asyncio.run(serve() if role == "server" else drive(int(sys.argv[3])))
except KeyboardInterrupt:
    pass
