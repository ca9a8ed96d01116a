"""Programs that talk over stream sockets of AF_UNIX: the same answers whichever end is under fastsock, and on the ring
where both are, unless the setting says otherwise."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, PLAIN, ROOT, WAYS, Server, command, ended

from .native import client, needs, under

SCRIPTS = Path(__file__).parent / "scripts"
OFF = {"FASTSOCK_UNIX_STREAMS": "0"}


@contextlib.contextmanager
def redis(way: str, folder: Path, **variables: str) -> Iterator[Path]:
    shutil.rmtree(folder / "redis", ignore_errors=True)
    (folder / "redis").mkdir()
    path = folder / "redis" / "socket"
    words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", path.parent]
    with Server(under(way, words), **variables) as server:
        server.until(path.exists, "it listens")
        yield path
        server.end()


@needs("redis-server", "redis-cli", "redis-benchmark")
@pytest.mark.parametrize("setting", ["on", "off"])
def test_redis(setting: str, tmp_path: Path) -> None:
    variables = OFF if setting == "off" else {}
    commands = "".join(f"SET k{i} {'v' * i * 20}\nGET k{i}\n" for i in range(200)) + "GET nothing\nPING\n"
    expected = None
    for server_way, client_way in WAYS:
        both = server_way == client_way == FASTSOCK and setting == "on"
        with redis(server_way, tmp_path, **variables) as path:
            got = client(client_way, tmp_path, ("redis-cli", "-s", path), commands, **variables)
            expected = expected or got.seen()
            assert got.seen() == expected
            assert got.ring == both
            words = (
                "redis-benchmark",
                "-s",
                path,
                "-t",
                "set,get,lrange_100,mset",
                "-n",
                "4000",
                "-c",
                "10",
                "-P",
                "4",
                "--csv",
            )
            got = client(client_way, tmp_path, words, **variables)
            assert (got.status, len(re.findall(r'^"', got.output, re.MULTILINE))) == (0, 6), got
            assert got.ring >= 10 if both else got.ring == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    said = {}
    for way in (PLAIN, FASTSOCK):
        folder = tmp_path / way
        folder.mkdir()
        launcher = [sys.executable, "-m", "fastsock", "run"] if way == FASTSOCK else [sys.executable]
        done = ended([*launcher, SCRIPTS / "unix_manager.py", method, folder])
        said[way] = done.stdout
        paths = ["ring", "ring", "tcp"] if way == FASTSOCK else ["plain"] * 3
        assert f"paths {paths}" in done.stderr
    assert said[FASTSOCK] == said[PLAIN]
    assert "descriptor b'through a pipe'" in said[PLAIN]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_asyncio(loop: str, tmp_path: Path) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    said = {}
    for way in (PLAIN, FASTSOCK):
        launcher = [sys.executable, "-m", "fastsock", "run"] if way == FASTSOCK else [sys.executable]
        for name in ("plain", "tls"):
            (tmp_path / name).unlink(missing_ok=True)
        words = [*launcher, SCRIPTS / "unix_asyncio.py", loop, tmp_path, ROOT / "bench/localhost.pem"]
        done = ended(words)
        said[way] = done.stdout
        assert f"paths {['ring' if way == FASTSOCK else 'plain'] * 2}" in done.stderr
    assert said[FASTSOCK] == said[PLAIN]


@pytest.mark.parametrize("library", ["aiohttp", "httpx"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_uvicorn(loop: str, library: str, tmp_path: Path) -> None:
    for name in ("uvicorn", library, *([loop] if loop == "uvloop" else [])):
        pytest.importorskip(name)
    said = []
    for server_way, client_way in WAYS:
        path = tmp_path / "socket"
        words = (
            "-m",
            "uvicorn",
            "--uds",
            path,
            "--loop",
            loop,
            "--no-access-log",
            "--app-dir",
            SCRIPTS,
            "unix_web:app",
        )
        with Server(command(server_way, *words)) as server:
            server.said("running on unix socket")
            done = ended(command(client_way, SCRIPTS / "unix_web.py", library, path))
        said.append(done.stdout)
        both = server_way == client_way == FASTSOCK
        assert f"path {'ring' if both else 'plain' if client_way == PLAIN else 'tcp'}" in done.stderr
    assert said == said[:1] * len(WAYS)
