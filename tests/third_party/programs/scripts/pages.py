"""What every HTTP server of these tests serves: as a function, and as a WSGI and as an ASGI application."""

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path

LARGE = random.Random(1).randbytes(3_000_000)
VERSION = 1


def page(method, path, body):
    """Status and body for a request. Waiting pages are answered when there is a file "go"."""
    if path == "/small":
        return "200 OK", b"hello"
    if path == "/large":
        return "200 OK", LARGE
    if path == "/echo" and method == "POST":
        return "200 OK", body[::-1]
    if path in ("/waits", "/blocks"):
        directory = Path(os.environ["DIRECTORY"])
        (directory / "waiting").touch()
        while not (directory / "go").exists():
            time.sleep(0.005)
    elif path != "/about":
        return "404 Not Found", b"no such page"
    return "200 OK", json.dumps([os.getpid(), VERSION, "fastsock" in sys.modules]).encode()


def pieces(path):
    """The pieces of an answer whose length nobody tells, if this is one."""
    return [LARGE[at : at + 10_000] for at in range(0, 200_000, 10_000)] if path == "/stream" else None


def wsgi(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    headers = [("Content-Type", "application/octet-stream")]
    if streamed := pieces(path):
        start_response("200 OK", headers)
        return iter(streamed)
    status, answer = page(method, path, body)
    start_response(status, [*headers, ("Content-Length", str(len(answer)))])
    return [answer] if method != "HEAD" else []


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while (kind := (await receive())["type"]) != "lifespan.shutdown":
            await send({"type": f"{kind}.complete"})
        await send({"type": f"{kind}.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            said = {kind: message[kind] for kind in ("text", "bytes") if message.get(kind) is not None}
            await send({"type": "websocket.send", **said})
    else:
        await http(scope, receive, send)


async def http(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    method, path = scope["method"], scope["path"]
    headers = [(b"content-type", b"application/octet-stream")]
    if streamed := pieces(path):
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in streamed:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        return await send({"type": "http.response.body"})
    if path == "/waits":  # others are answered meanwhile
        status, answer = await asyncio.get_running_loop().run_in_executor(None, page, method, path, body)
    else:
        status, answer = page(method, path, body)
    headers.append((b"content-length", b"%d" % len(answer)))
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
    return await send({"type": "http.response.body", "body": answer if method != "HEAD" else b""})
