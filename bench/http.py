"""A web service whose application computes for a while: uvicorn with a small ASGI app, and an aiohttp client."""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter, process_time
from typing import Any

from bench.aio import listening, run
from bench.warmup import Address, Order
from bench.worker import Report, Role

BEFORE = 20  # requests of each worker before anything is timed
STOP = "/stop"


def serve_http(listener: socket.socket, order: Order, role: Role) -> Report:
    import uvicorn

    compute = order["compute_us"] / 1e6
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"2")]
    served = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal served
        served += 1
        until = perf_counter() + compute
        while perf_counter() < until:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})
        if scope["path"] == STOP:
            server.should_exit = True

    config = uvicorn.Config(app, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    cpu = process_time()
    run(_serve(server, listening(listener)), order["eventloop"])
    return {"cpu_seconds": process_time() - cpu - served * compute, "messages": served, "path": "ring", "reason": ""}


async def _serve(server: Any, listener: socket.socket) -> Report:
    await server.serve(sockets=[listener])
    return {}


def drive_http(address: Address, order: Order, role: Role) -> Report:
    return run(_drive(address, order, role), order["eventloop"])


async def _drive(address: Address, order: Order, role: Role) -> Report:
    import aiohttp

    url = f"http://{address[0]}:{address[1]}/"
    workers = order["connections"]
    moved_before = role.connections_moved()

    async def get(session: Any, path: str = "") -> None:
        async with session.get(url + path) as response:
            await response.read()

    async def work(session: Any, until: float | None) -> int:
        """Requests done: BEFORE, or as many as begin in time, and one in any case."""
        count = 0
        while count < BEFORE if until is None else not count or perf_counter() < until:
            await get(session)
            count += 1
        return count

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=workers)) as session:
        await asyncio.gather(*(work(session, None) for _ in range(workers)))
        cpu, start = process_time(), perf_counter()
        counts = await asyncio.gather(*(work(session, start + order["seconds"]) for _ in range(workers)))
        elapsed, cpu = perf_counter() - start, process_time() - cpu
        await get(session, STOP[1:])
    moved = role.connections_moved() - moved_before
    return {
        "requests_per_second": sum(counts) / elapsed,
        "count": sum(counts),
        "elapsed": elapsed,
        "cpu_seconds": cpu,
        "checked": workers,
        "moved": moved,
        "path": "kernel" if role.settings is None else "ring" if moved else "tcp",
        "reason": f"{moved} of {workers} connections moved",
    }
