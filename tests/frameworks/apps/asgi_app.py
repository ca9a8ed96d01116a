"""An ASGI application on Starlette. It knows nothing of fastsock, but for what /about tells."""

import asyncio
import os
import sys
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

VERSION = 1
DEADLINE = 20  # seconds that a request waits for a file, at most


def statistics():
    fastsock = sys.modules.get("fastsock")
    if fastsock is None:
        return None
    stats = fastsock.stats()
    return {"ring": stats.connections_ring, "tcp": stats.connections_tcp, "why": dict(stats.fallback_reasons)}


async def about(request: Request) -> Response:
    return JSONResponse({"pid": os.getpid(), "version": VERSION, "statistics": statistics()})


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/octet-stream")


async def stream(request: Request) -> Response:
    """/stream/N: N pieces, sent one by one, each with its number in it."""

    async def pieces():
        for number in range(request.path_params["count"]):
            yield b"%08d" % number * 125

    return StreamingResponse(pieces(), media_type="application/octet-stream")


async def block(request: Request) -> Response:
    """Keeps the whole process busy until there is a file; begins one beside it, so that others know."""
    await asyncio.sleep(0)
    waits_for(Path(request.query_params["until"]))
    return JSONResponse(os.getpid())


def waits_for(file: Path) -> None:
    file.with_suffix(".begun").touch()
    limit = time.monotonic() + DEADLINE
    while not file.exists() and time.monotonic() < limit:
        time.sleep(0.002)


async def slow(request: Request) -> Response:
    """Answers when there is a file, and leaves other requests alone meanwhile."""
    file = Path(request.query_params["until"])
    await asyncio.get_running_loop().run_in_executor(None, waits_for, file)
    return JSONResponse(os.getpid())


async def talk(socket: WebSocket) -> None:
    await socket.accept()
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text") is not None:
                await socket.send_text(message["text"])
            else:
                await socket.send_bytes(message["bytes"])
    except WebSocketDisconnect:
        return


app = Starlette(
    routes=[
        Route("/about", about),
        Route("/echo", echo, methods=["POST"]),
        Route("/stream/{count:int}", stream),
        Route("/block", block),
        Route("/slow", slow),
        WebSocketRoute("/talk", talk),
    ]
)
