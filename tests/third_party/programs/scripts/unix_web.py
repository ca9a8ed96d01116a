"""An application for `uvicorn --uds`, and clients of it: `unix_web.py PATH`. Prints what comes out and, under fastsock,
which connections were on the ring."""

import asyncio
import sys

SIZES = (1, 1000, 100_000)


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    sent, more = b"", True
    while more:
        message = await receive()
        sent, more = sent + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(sent))]})
    await send({"type": "http.response.body", "body": sent[::-1]})


def path_of(sock):
    if "fastsock" not in sys.modules:
        return "plain"
    import fastsock

    return fastsock.path_of(sock).path


async def use_aiohttp(path):
    import aiohttp

    connector = aiohttp.UnixConnector(path, limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        for size in SIZES * 20:
            async with session.post("http://localhost/", data=b"ab" * size) as response:
                assert await response.read() == b"ba" * size
        async with session.get("http://localhost/") as response:
            transport = response.connection.transport if response.connection else None
            print("aiohttp", response.status, response.headers["content-length"])
        if transport is None:  # it is back in the pool
            [[(kept, _)]] = connector._conns.values()
            transport = kept.transport
        return path_of(transport)


async def use_httpx(path):
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=path)
    async with httpx.AsyncClient(transport=transport) as session:
        for size in SIZES * 20:
            response = await session.post("http://localhost/", content=b"ab" * size)
            assert response.content == b"ba" * size
        print("httpx", response.status_code, response.headers["content-length"])
        return path_of(response.extensions["network_stream"].get_extra_info("socket"))


if __name__ == "__main__":
    uses = {"aiohttp": use_aiohttp, "httpx": use_httpx}
    print("path", asyncio.run(uses[sys.argv[1]](sys.argv[2])), file=sys.stderr)
