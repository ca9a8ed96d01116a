"""An ASGI application on uvicorn that keeps files in memory.

An ordinary program; it does not know about fastsock.

    python examples/asgi_server.py
    fastsock run examples/asgi_server.py --loop asyncio

Needs uvicorn and starlette. Prints `listening on HOST:PORT` when it accepts connections. On SIGTERM it finishes what is
under way and prints, as JSON, how many files it has and how many requests it had.

The application alone, under any ASGI server: `fastsock run -m uvicorn asgi_server:app` in this directory.
"""

import argparse
import hashlib
import json
import signal
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

files: dict[str, bytes] = {}
requests = 0


async def listing(request: Request) -> Response:
    """The name of each file, with its SHA-256."""
    return JSONResponse({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})


async def store(request: Request) -> Response:
    files[request.path_params["name"]] = await request.body()
    return Response(status_code=204)


async def fetch(request: Request) -> Response:
    data = files.get(request.path_params["name"])
    if data is None:
        raise HTTPException(404)
    return Response(data, media_type="application/octet-stream")


def counting(application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            global requests
            requests += message["type"] == "http.response.start"
            await send(message)

        await application(scope, receive, sending)

    return counted


app = counting(
    Starlette(
        routes=[
            Route("/files", listing),
            Route("/files/{name:path}", store, methods=["PUT"]),
            Route("/files/{name:path}", fetch),
        ]
    )
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    arguments = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises its signal again when it has stopped
    listener = socket.create_server(("127.0.0.1", arguments.port), backlog=128)
    print("listening on {}:{}".format(*listener.getsockname()), flush=True)
    server = uvicorn.Server(uvicorn.Config(app, loop=arguments.loop, log_level="warning"))
    server.run(sockets=[listener])
    print(json.dumps({"files": len(files), "requests": requests}))


if __name__ == "__main__":
    main()
