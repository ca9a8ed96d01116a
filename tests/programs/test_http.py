"""HTTP: every server with every client library, each end plain and under fastsock."""

import functools
import signal
import subprocess
from typing import Any

import pytest

from programs.launch import (
    DEADLINE,
    FASTSOCK,
    FOREIGN,
    PLAIN,
    SCRIPTS,
    UNPAID,
    WAYS,
    Server,
    check_paths,
    report,
    until_moved,
)

GUNICORN = ("-m", "gunicorn", "--bind", "127.0.0.1:0", "--keep-alive", "30", "--chdir", SCRIPTS, "pages:app")
OWN = ("http.server", "wsgiref", "werkzeug", "waitress", "cheroot")
SERVERS = {
    **{name: (SCRIPTS / "http_servers.py", name) for name in OWN},
    "gunicorn-sync": (*GUNICORN, "--workers", "2"),
    "gunicorn-gthread": (*GUNICORN, "--worker-class", "gthread", "--threads", "4"),
    "gunicorn-gevent": (*GUNICORN, "--worker-class", "gevent"),
}
ALIVE = {"http.server": 1, "waitress": 2, "cheroot": 1, "gunicorn-gthread": 1, "gunicorn-gevent": 1}
"""Servers that keep connections alive, and how many a pool makes: waitress closes after an answer without a length."""
POOLS = ("requests", "urllib3", "httpx", "http.client")
LIBRARIES = (*POOLS, "urllib.request")


class Servers:
    """All servers, started both ways, and what the clients said of them."""

    def __init__(self, directory) -> None:
        self.servers = {
            (way, name): Server(way, directory, name, *words)
            for way in (PLAIN, FASTSOCK)
            for name, words in SERVERS.items()
        }

    def ports(self, way: str) -> dict[str, int]:
        return {name: self.servers[way, name].port for name in SERVERS}

    @functools.cache  # noqa: B019 - there is one object, and it lives as long as the tests do
    def report(self, server_way: str, client_way: str) -> dict[str, Any]:
        words = [f"{name}={port}" for name, port in self.ports(server_way).items()]
        return report(client_way, "http_clients.py", *words)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    started = Servers(tmp_path_factory.mktemp("http"))
    started.report(FASTSOCK, FASTSOCK)  # first, before they learn that these sessions are too short for a move to pay
    yield started
    for server in started.servers.values():
        server.kill()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("server_way", "client_way"), WAYS)
def test_same_answers_on_the_expected_path(servers, server, server_way, client_way):
    expected = servers.report(PLAIN, PLAIN)
    got = servers.report(server_way, client_way)
    again = Servers.report.__wrapped__
    for library in LIBRARIES:
        name = f"{server} {library}"
        keeps = server in ALIVE and library in POOLS
        ours = PLAIN if server == "gunicorn-gevent" else server_way
        if keeps and ours == client_way == FASTSOCK:
            got[name] = until_moved(lambda name=name: again(servers, server_way, client_way)[name], got[name], 1)
        paths = got[name]["paths"]
        moves = keeps and not (paths and UNPAID in paths["tcp"])
        assert got[name]["answers"] == expected[name]["answers"]
        assert got[name]["connections"] == expected[name]["connections"]
        if keeps:
            assert got[name]["connections"] == ALIVE[server]
        check_paths(got[name]["paths"], ours, client_way, ring=1 if moves else 0)


def curl(*words: object) -> bytes:
    """What curl prints. A missing curl fails the test: nothing else is a peer that is surely foreign."""
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "20", "--noproxy", "*", *map(str, words)],
        capture_output=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@pytest.mark.parametrize("server", SERVERS)
def test_curl(servers, server, tmp_path):
    """One curl makes many requests, on one connection where the server keeps it."""
    (tmp_path / "body").write_bytes(b"0123456789" * 20_000)
    said = {}
    for way in (PLAIN, FASTSOCK):
        base = f"http://127.0.0.1:{servers.ports(way)[server]}"
        post = ("--data-binary", f"@{tmp_path / 'body'}", f"{base}/echo")
        repeated = [f"{base}/small"] * 30 + [f"{base}/large"] * 3
        said[way] = [
            curl("--write-out", "%{http_code} %{num_connects}\n", *repeated),
            curl("--write-out", "%{http_code} %{num_connects}\n", *post),
            curl("--http1.0", f"{base}/large"),
        ]
    assert said[FASTSOCK] == said[PLAIN]
    if server in ALIVE:
        assert said[FASTSOCK][0].count(b"200 1\n") == 1


def test_servers_end_as_ever(servers):
    """The last test of the module: every server ends on SIGTERM, with its status, and has counted its connections."""
    for (way, name), server in servers.servers.items():
        output = server.end(signal.SIGTERM)
        assert "fastsock" not in output or name == "gunicorn-gevent"
        if way == FASTSOCK and name in OWN:  # gunicorn's master serves nobody
            stats = server.stats()
            assert set(stats["fallback_reasons"]) <= {*FOREIGN, "ended before it could move"}
            assert stats["connections_tcp"] > 0
            assert (stats["connections_ring"] > 0) >= (name in ALIVE)
