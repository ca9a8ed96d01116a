"""HTTP and WebSockets between servers and clients on asyncio.

Whichever end is under fastsock, the answers are the same. With both ends under it, connections that are kept alive take
the ring; with a foreign end they stay on kernel TCP.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frameworks.harness import APPS, Server, free_port, run, serving

UVICORN = ("-m", "uvicorn", "--port", "0", "--no-access-log")
HYPERCORN = ("-m", "hypercorn", "--bind", "127.0.0.1:0")
CLIENT = APPS / "http_client.py"
CERTIFICATE = Path(__file__).parents[2] / "bench/localhost.pem"
POOLS = ("aiohttp", "httpx")
WEBSOCKETS = ("websockets", "aiohttp_ws")
SERVERS: dict[str, tuple[object, ...]] = {
    "uvicorn on uvloop": (*UVICORN, "--loop", "uvloop", "asgi_app:app"),
    "uvicorn on asyncio": (*UVICORN, "--loop", "asyncio", "--http", "h11", "fastapi_app:app"),
    "hypercorn on uvloop": (*HYPERCORN, "-k", "uvloop", "asgi_app:app"),
    "hypercorn on trio": (*HYPERCORN, "-k", "trio", "asgi_app:app"),
    "aiohttp on asyncio": (APPS / "aiohttp_app.py", "--runner", "run_app"),
    "aiohttp on uvloop": (APPS / "aiohttp_app.py", "--runner", "uvloop.run"),
    "tornado": (APPS / "tornado_app.py",),
    "granian": ("-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "asgi_app:app"),
}
CLIENT_ON_ASYNCIO = {"uvicorn on uvloop", "hypercorn on trio", "tornado"}
"""So that either loop meets either loop."""
WORKER_ONLY = {"hypercorn on uvloop", "hypercorn on trio", "granian"}
"""Servers that serve in a child process, always: `--stats` is about their parent."""
NATIVE = {"granian"}
"""Servers whose sockets are not Python's: they stay on kernel TCP, whoever starts them."""


@contextlib.contextmanager
def started(way: str, name: str, **options: Any) -> Iterator[Server]:
    words = SERVERS[name]
    with contextlib.ExitStack() as stack:
        if name == "granian":  # does not say which port the kernel has chosen
            options["port"], holder = free_port()
            stack.enter_context(holder)
            words = (*words, "--port", options["port"])
        server = Server(way, *words, **options)
        stack.callback(server.kill)
        yield server


@pytest.fixture(scope="module", params=SERVERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def server(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each server once, under fastsock, for all tests that take it."""
    with started("fastsock", name, stats=tmp_path_factory.mktemp("statistics") / "server.json") as server:
        yield server


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Server]:
    with started("plain", "uvicorn on uvloop") as server:
        yield server


@pytest.fixture(scope="module")
def expected(plain_server: Server) -> dict[str, str]:
    """What each library gets when neither end is under fastsock."""
    results = run("plain", CLIENT, plain_server.url, "uvloop", *POOLS, *WEBSOCKETS)
    assert [result["took"] for result in results.values()] == [None] * 4
    assert plain_server.about()["statistics"] is None
    return digests(results)


def digests(results: Any) -> dict[str, str]:
    return {library: result["digest"] for library, result in results.items()}


def on_the_ring(server: Server) -> int:
    return server.about()["statistics"]["ring"]


def test_both_ends_under_fastsock(server: Server, name: str, expected: dict[str, str]) -> None:
    loop = "asyncio" if name in CLIENT_ON_ASYNCIO else "uvloop"
    before = on_the_ring(server)
    moves = {} if name in NATIVE else {"MOVES": "1"}
    results = run("fastsock", CLIENT, server.url, loop, *POOLS, *WEBSOCKETS, **moves)
    assert digests(results) == expected
    if name in NATIVE:
        assert {result["took"]["ring"] for result in results.values()} == {0}
        assert on_the_ring(server) == before
        return
    assert results["aiohttp"]["took"]["ring"] >= 1, results
    # httpx asks its transport's socket for the number each time it takes a connection from its pool, and polls it.
    assert results["httpx"]["took"]["ring"] == 0, results
    for library in WEBSOCKETS:
        assert results[library]["took"] == {"ring": 1, "tcp": 0}, results
    assert on_the_ring(server) >= before + 4


def test_an_unpatched_client(server: Server, expected: dict[str, str]) -> None:
    before = on_the_ring(server)
    digest = digests(run("plain", CLIENT, server.url, "uvloop", "aiohttp", "aiohttp_ws"))
    assert digest.items() < expected.items()
    assert on_the_ring(server) == before


def test_curl(server: Server, name: str) -> None:
    before = server.about()["statistics"]
    urls = [server.url + "/stream/50"] * 30  # over one connection
    assert server.curl("/stream/50", *urls) == b"".join(b"%08d" % number * 125 for number in range(50)) * 31
    after = server.about()["statistics"]
    assert after["ring"] == before["ring"]
    if name not in NATIVE:
        assert after["tcp"] == before["tcp"] + 2  # this one, and the one that asked for the statistics


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_an_unpatched_server(plain_server: Server, expected: dict[str, str], loop: str) -> None:
    results = run("fastsock", CLIENT, plain_server.url, loop, *POOLS, *WEBSOCKETS)
    assert digests(results) == expected
    for library, result in results.items():
        assert result["took"]["ring"] == 0, library
        assert result["took"]["tcp"] >= 1, library


@pytest.mark.parametrize(
    ("way", "loop", "client_loop"),
    [("fastsock", "uvloop", "asyncio"), ("fastsock", "asyncio", "uvloop"), ("plain", "uvloop", "uvloop")],
)
def test_tls(expected: dict[str, str], way: str, loop: str, client_loop: str) -> None:
    words = (*UVICORN, "--ssl-certfile", CERTIFICATE, "--loop", loop, "asgi_app:app")
    with serving("fastsock", *words) as server:
        assert server.url.startswith("https")
        libraries = (*POOLS, *WEBSOCKETS)
        results = run(way, CLIENT, server.url, client_loop, *libraries, SSL_CERT_FILE=str(CERTIFICATE), MOVES="1")
        assert digests(results) == expected
        ring = json.loads(server.curl("/about", "--cacert", str(CERTIFICATE)))["statistics"]["ring"]
        if way == "plain":
            assert ring == 0
        else:
            assert ring >= 3
            assert all(results[library]["took"]["ring"] >= 1 for library in libraries if library != "httpx"), results


@pytest.mark.parametrize("way", ["plain", "fastsock"])
def test_tornados_client(plain_server: Server, expected: dict[str, str], way: str) -> None:
    """Its IOStream makes a connection for each request."""
    results = run(way, CLIENT, plain_server.url, "asyncio", "tornado")
    assert results["tornado"]["took"] == (None if way == "plain" else {"ring": 0, "tcp": 3})


def test_it_ends_cleanly(server: Server, name: str) -> None:
    """The last one for each server: it says nothing of errors, and its statistics are written."""
    ring = on_the_ring(server)
    status, said = server.end()
    assert (status, "Traceback" in said, "rror" in said) == (0, False, False), said
    assert (ring == 0) == (name in NATIVE)
    assert server.statistics()["connections_ring"] == (0 if name in WORKER_ONLY else ring)
