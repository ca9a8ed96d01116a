"""Measures fanout_server.py by a group of fastsock and by Redis pub/sub, in turns.

    python examples/fanout.py --workers 4 --messages 2000 --turns 3

Needs what the server needs, aiohttp, and the program redis-server. Both ways have their own workers, which live all the
time, each with a socket in the room "end". A turn lets one worker publish messages, and ends when all workers have
told of the last one. First nobody is in the messages' room, so that this is the workers' passing on alone; then
`--sockets` sockets on each worker get every message. Prints for each a line of JSON: messages a second and the
processor time of all workers and of Redis for a message, the medians of all turns, and what the group is to Redis.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from socket import create_server
from typing import Any

import aiohttp

WAYS = ("group", "redis")
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: int) -> float:
    """Of a process and all that it has started."""
    try:
        text = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    return (int(text[11]) + int(text[12])) / TICKS + sum(processor_seconds(int(child)) for child in children)


@contextlib.contextmanager
def started(words: list[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Listener(asyncio.Protocol):
    """A WebSocket that counts bytes, and looks at no frame: sixteen that do would be the slowest part by far."""

    def __init__(self) -> None:
        self.data, self.count, self.wanted = b"", 0, -1
        self.enough = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.count += len(data)
        if self.wanted < 0:
            self.data += data
        if self.wanted < 0 or self.count >= self.wanted:
            self.enough.set()

    async def open(self, address: str, path: str) -> str:
        """Returns the first message."""
        host, _, port = address.partition(":")
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_connection(lambda: self, host, int(port))
        lines = [f"GET {path} HTTP/1.1", f"Host: {address}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==", "", ""]
        self.transport.write("\r\n".join(lines).encode())
        while len(frame := self.data.partition(b"\r\n\r\n")[2]) < 2 or len(frame) < 2 + frame[1]:
            self.enough.clear()
            await asyncio.wait_for(self.enough.wait(), 5)
        return frame[2 : 2 + frame[1]].decode()

    def expect(self, messages: int, length: int) -> None:
        self.count, self.wanted = 0, messages * (length + (2 if length < 126 else 4 if length < 1 << 16 else 10))
        self.enough.clear()

    async def take(self) -> None:
        await self.enough.wait()
        if self.count != self.wanted:
            raise ValueError("the messages are not as they were sent")


class Way:
    """The workers of a way, and sockets there."""

    def __init__(self, session: aiohttp.ClientSession, processes: list[int], address: str, workers: int) -> None:
        self.session, self.processes, self.address, self.workers = session, processes, address, workers
        self.ends: list[Listener] = []

    async def open(self, room: str, each: int) -> list[Listener]:
        """As many sockets in the room on each worker. (Which worker a connection comes to is the kernel's choice.)"""
        found: dict[str, list[Listener]] = {}
        until = time.monotonic() + 60
        while len(found) < self.workers or min(map(len, found.values())) < each:
            if time.monotonic() > until:
                raise TimeoutError("not all workers answer")
            try:
                socket = Listener()
                sockets = found.setdefault(await socket.open(self.address, f"/rooms/{room}"), [])
            except (OSError, asyncio.TimeoutError):
                await asyncio.sleep(0.1)
                continue
            if len(sockets) < each:
                sockets.append(socket)
            else:
                socket.transport.close()
        return [socket for sockets in found.values() for socket in sockets]

    async def begin(self) -> None:
        self.ends = await self.open("end", 1)
        self.burst = await self.session.ws_connect(f"http://{self.address}/burst")

    async def turn(self, room: str, count: int, size: int, listeners: list[Listener]) -> tuple[float, float]:
        """Messages a second, and processor time for each, us."""
        for each in self.ends:
            each.expect(1, 1)
        for each in listeners:
            each.expect(count, size)
        used, began = sum(map(processor_seconds, self.processes)), time.monotonic()
        await self.burst.send_str(f"{room} {count} {size}")
        await self.burst.receive_str()
        await self.burst.send_str("end 1 1")
        await asyncio.wait_for(asyncio.gather(*(each.take() for each in (*listeners, *self.ends))), 120)
        took = time.monotonic() - began
        await self.burst.receive_str()
        return count / took, (sum(map(processor_seconds, self.processes)) - used) / count * 1e6


async def measure(addresses: dict[str, str], processes: dict[str, list[int]], given: argparse.Namespace) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        ways = {name: Way(session, processes[name], addresses[name], given.workers) for name in WAYS}
        for way in ways.values():
            await way.begin()
        for sockets in (0, given.sockets):
            listeners = {name: await way.open("all", sockets) if sockets else [] for name, way in ways.items()}
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
            count = given.messages if not sockets else max(1, given.messages // (1 + sockets))
            for _ in range(given.turns):
                for name, way in ways.items():
                    taken[name].append(await way.turn("all", count, given.size, listeners[name]))
            rate = {name: statistics.median(turn[0] for turn in turns) for name, turns in taken.items()}
            cost = {name: statistics.median(turn[1] for turn in turns) for name, turns in taken.items()}
            told: dict[str, Any] = {"sockets_on_each_worker": sockets, "workers": given.workers, "size": given.size}
            for name in WAYS:
                told[name] = {"messages_per_second": round(rate[name]), "cpu_us": round(cost[name], 1)}
            told["rate"] = round(rate["group"] / rate["redis"], 2)
            told["cpu"] = round(cost["group"] / cost["redis"], 3) if cost["redis"] else None
            print(json.dumps(told), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--messages", type=int, default=4000, help="of a turn")
    parser.add_argument("--size", type=int, default=1024, help="characters of a message")
    parser.add_argument("--sockets", type=int, default=4, help="on each worker, that get all messages")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    if not shutil.which("redis-server"):
        parser.error("there is no redis-server")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = f"{folder}/redis.sock"
        line = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        redis = stack.enter_context(started(line))
        while not os.path.exists(path):
            if redis.poll() is not None:
                parser.error("redis-server does not start")
            time.sleep(0.05)
        addresses, processes = {}, {}
        for name in WAYS:
            with create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            line = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parent), "fanout_server:app"]
            line += [
                "--workers",
                str(given.workers),
                "--port",
                str(port),
                "--log-level",
                "warning",
                "--ws-ping-interval",
                "3600",
            ]
            variables = {"FANOUT_BY": name, "FANOUT_REDIS": path, "FANOUT_NAME": f"fan-out {os.getpid()}"}
            server = stack.enter_context(started(line, **variables))
            addresses[name] = f"127.0.0.1:{port}"
            processes[name] = [server.pid, redis.pid] if name == "redis" else [server.pid]
        asyncio.run(measure(addresses, processes, given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
