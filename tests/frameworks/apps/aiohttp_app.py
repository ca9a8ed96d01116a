"""The same on aiohttp's own server. Arguments: the loop (asyncio, uvloop), --port and --reuse-port."""

import argparse
import asyncio
import os
from pathlib import Path

from aiohttp import WSMsgType, web
from asgi_app import VERSION, statistics, waits_for


async def about(request: web.Request) -> web.Response:
    path = request.transport.get_extra_info("fastsock") if request.transport else None
    return web.json_response(
        {"pid": os.getpid(), "version": VERSION, "statistics": statistics(), "path": path and path.path}
    )


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(int(request.match_info["count"])):
        await response.write(b"%08d" % number * 125)
    await response.write_eof()
    return response


async def block(request: web.Request) -> web.Response:
    waits_for(Path(request.query["until"]))
    return web.json_response(os.getpid())


async def talk(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type == WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type == WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


def application() -> web.Application:
    app = web.Application(client_max_size=1 << 26)
    app.add_routes(
        [
            web.get("/about", about),
            web.post("/echo", echo),
            web.get("/stream/{count}", stream),
            web.get("/block", block),
            web.get("/talk", talk),
        ]
    )
    return app


async def serve(arguments: argparse.Namespace) -> None:
    """On a runner and a site of one's own."""
    runner = web.AppRunner(application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", arguments.port, reuse_port=arguments.reuse_port)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", choices=("asyncio.run", "uvloop.run", "run_app"), default="run_app")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--reuse-port", action="store_true")
    arguments = parser.parse_args()
    if arguments.runner == "run_app":
        web.run_app(
            application(),
            host="127.0.0.1",
            port=arguments.port,
            reuse_port=arguments.reuse_port,
            print=lambda line: print(line, flush=True),
        )
        return
    if arguments.runner == "uvloop.run":
        import uvloop

        run = uvloop.run
    else:
        run = asyncio.run
    try:
        run(serve(arguments))
    except KeyboardInterrupt:
        pass


main()
