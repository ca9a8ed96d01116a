"""The ways to a TCP stream: asyncio's streams, protocols and socket methods, anyio, tornado's IOStream, and trio. Each
client talks to each server."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from frameworks.harness import APPS, Server, run, serving

LOOPS = ("asyncio", "uvloop", "trio")
PORTS = re.compile(rb"ports (\{.*\})")


def expected() -> str:
    """What each conversation gives."""
    small = b"".join(b"%d " % number * (1 + number % 150) for number in range(500))
    return hashlib.sha256(small + bytes(range(256)) * 8192).hexdigest()


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving("fastsock", APPS / "echo_server.py", request.param) as server:
        yield server


def ports(server: Server) -> dict[str, int]:
    return json.loads(server.wait_for(PORTS).group(1))


def streams_of(server: Server) -> str:
    """The ports that echo streams, as JSON."""
    return json.dumps({name: port for name, port in ports(server).items() if name != "websockets"})


def check(results: Any, took: list[int] | None) -> None:
    assert {pair: result["digest"] for pair, result in results.items()} == dict.fromkeys(results, expected())
    assert {pair: result["took"] for pair, result in results.items()} == dict.fromkeys(results, took)


@pytest.mark.parametrize("loop", LOOPS)
def test_both_ends_under_fastsock(server: Server, loop: str) -> None:
    check(run("fastsock", APPS / "echo_client.py", loop, streams_of(server), MOVES="1"), [1, 0])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_websockets(server: Server, loop: str) -> None:
    port = ports(server).get("websockets")
    if port is None:
        return  # the library has no server on trio
    results = run("fastsock", APPS / "http_client.py", f"http://127.0.0.1:{port}", loop, "websockets", MOVES="1")
    assert results["websockets"]["took"] == {"ring": 1, "tcp": 0}


def test_an_unpatched_client(server: Server) -> None:
    check(run("plain", APPS / "echo_client.py", "uvloop", streams_of(server)), None)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_unpatched_server(plain_ports: dict[str, int], loop: str) -> None:
    check(run("fastsock", APPS / "echo_client.py", loop, json.dumps(plain_ports)), [0, 1])


@pytest.fixture(scope="module")
def plain_ports() -> Iterator[dict[str, int]]:
    with serving("plain", APPS / "echo_server.py", "asyncio") as server:
        yield {name: port for name, port in ports(server).items() if name in ("streams", "sockets")}
