"""A WSGI application: 1 KiB for every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BODY = b"x" * 1024


def app(_environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(BODY)))])
    return [BODY]
