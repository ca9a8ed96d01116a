"""An ASGI application that computes for two milliseconds before each answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Any

import asgi_app

SECONDS = 0.002


async def app(scope: dict[str, Any], receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    end = thread_time() + SECONDS
    while thread_time() < end:
        pass
    await asgi_app.app(scope, receive, send)
