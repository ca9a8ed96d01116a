"""The same on FastAPI."""

import os
from typing import Any

from asgi_app import VERSION, statistics, stream, talk
from fastapi import FastAPI, Request, Response, WebSocket

app = FastAPI()


@app.get("/about")
def about() -> dict[str, Any]:  # in FastAPI's thread pool
    return {"pid": os.getpid(), "version": VERSION, "statistics": statistics()}


@app.post("/echo")
async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/octet-stream")


@app.get("/stream/{count}")
async def pieces(request: Request, count: int) -> Response:
    request.path_params["count"] = count
    return await stream(request)


@app.websocket("/talk")
async def websocket(socket: WebSocket) -> None:
    await talk(socket)
