"""An ASGI application: 1 KiB for every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

BODY = b"x" * 1024


async def app(scope: dict[str, Any], _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    if scope["type"] != "http":
        return
    length = str(len(BODY)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": BODY})
