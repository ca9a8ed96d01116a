"""FTP, remote calls, SSH, Redis, and programs on trio: each end plain and under fastsock."""

import functools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import port_for_later

from programs.launch import (
    DEADLINE,
    FASTSOCK,
    FOREIGN,
    NATIVE,
    PLAIN,
    SCRIPTS,
    WAYS,
    Server,
    check_paths,
    report,
    serving,
    until_moved,
)

RPC = ("xmlrpc", "rpyc-threaded", "rpyc-forking")
FTP = ("plain", "threaded", "forking")
TRIO = ("trio", "anyio")

CLIENTS = {"ftp": "ftp_client.py", "rpc": "rpc_client.py", "ssh": "ssh_client.py", "trio": "trio_client.py"}


class Servers:
    """All servers, started both ways, and what the clients said of them."""

    def __init__(self, directory: Path, certificate: Path) -> None:
        self.servers: dict[tuple[str, str, str], Server] = {}
        for way in (PLAIN, FASTSOCK):
            for kind in FTP:
                (directory / f"{way}-{kind}").mkdir()
                words = ("ftp_server.py", kind, directory / f"{way}-{kind}", certificate)
                self.start(way, directory, "ftp", kind, *words)
            for kind in RPC:
                self.start(way, directory, "rpc", kind, "rpc_server.py", kind)
            for kind in TRIO:
                self.start(way, directory, "trio", kind, "trio_server.py", kind)
            (directory / f"{way}-ssh").mkdir()
            self.start(way, directory, "ssh", "ssh", "ssh_server.py", directory / f"{way}-ssh")

    def start(self, way: str, directory: Path, group: str, kind: str, script: str, *words: object) -> None:
        self.servers[way, group, kind] = Server(way, directory, f"{group}-{kind}", SCRIPTS / script, *words)

    @functools.cache  # noqa: B019 - there is one object, and it lives as long as the tests do
    def report(self, group: str, server_way: str, client_way: str) -> dict[str, Any]:
        ports = {kind: it.port for (way, its, kind), it in self.servers.items() if (way, its) == (server_way, group)}
        words = [ports["ssh"]] if group == "ssh" else [f"{kind}={port}" for kind, port in ports.items()]
        return report(client_way, CLIENTS[group], *words)

    def check(
        self, group: str, server_way: str, client_way: str, exercise: str, ring: int, connections: int, *also: str
    ) -> None:
        """Same answers as among plain programs, on `connections`, of which at least `ring` can take the ring."""
        expected = self.report(group, PLAIN, PLAIN)[exercise]
        got = self.report(group, server_way, client_way)[exercise]
        if server_way == client_way == FASTSOCK:
            again = type(self).report.__wrapped__
            got = until_moved(lambda: again(self, group, server_way, client_way)[exercise], got, ring)
        assert got["answers"] == expected["answers"]
        assert (got["connections"], expected["connections"]) == (connections, connections)
        check_paths(got["paths"], server_way, client_way, ring, *also)


@pytest.fixture(scope="module")
def servers(tmp_path_factory, certificate) -> Iterator[Servers]:
    started = Servers(tmp_path_factory.mktemp("others"), certificate)
    yield started
    for server in started.servers.values():
        server.kill()


BOTH_ENDS = pytest.mark.parametrize(("server_way", "client_way"), WAYS)


@pytest.mark.parametrize("kind", FTP)
@BOTH_ENDS
def test_ftp(servers, server_way, client_way, kind):
    """The control connection moves; a passive data connection when it outlasts the search for its peer."""
    servers.check("ftp", server_way, client_way, kind, ring=1, connections=9)


@pytest.mark.parametrize("kind", FTP)
@BOTH_ENDS
def test_ftp_over_tls(servers, server_way, client_way, kind):
    """AUTH TLS in mid-stream, before the control connection has moved or after."""
    servers.check("ftp", server_way, client_way, f"{kind} TLS", 0, 9, "descriptor detached")


@pytest.mark.parametrize("kind", RPC)
@BOTH_ENDS
def test_remote_calls(servers, server_way, client_way, kind):
    """The second of two clients in turn, too: a forking server has closed its copy of the first by then."""
    for number in range(2):
        servers.check("rpc", server_way, client_way, f"{kind} {number}", ring=1, connections=1)


@BOTH_ENDS
def test_ssh(servers, server_way, client_way):
    servers.check("ssh", server_way, client_way, "ssh", ring=1, connections=1)


@pytest.mark.parametrize("kind", TRIO)
@pytest.mark.parametrize("library", TRIO)
@BOTH_ENDS
def test_trio(servers, server_way, client_way, kind, library):
    servers.check("trio", server_way, client_way, f"{kind} use_{library}", ring=4, connections=4)


def test_servers_end_as_ever(servers):
    """The last test with these servers: each ends on SIGTERM, with its status, and has counted its connections."""
    for (way, _, kind), server in servers.servers.items():
        assert "fastsock" not in server.end(signal.SIGTERM)
        if way == FASTSOCK and "forking" not in kind:
            stats = server.stats()
            assert stats["connections_ring"] > 0
            assert stats["connections_tcp"] > 0
            assert set(stats["fallback_reasons"]) <= {*FOREIGN, "descriptor detached", "ended before it could move"}


def test_redis(tmp_path):
    """A server in C: kernel TCP, and after two seconds the reason is certain."""
    redis = shutil.which("redis-server")
    assert redis, "redis-server is not installed: apt-get install redis-server"
    port = port_for_later()
    words = (redis, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", tmp_path)
    with serving(NATIVE, tmp_path, "redis", *words) as server:
        server.said("[Rr]eady to accept connections")
        expected = report(PLAIN, "redis_client.py", port, 0)
        certain = {"peer does not use fastsock": 1}
        for seconds in (2.3, 5, 15):  # on a busy machine it is looked for longer
            got = report(FASTSOCK, "redis_client.py", port, seconds)
            if got["redis"]["paths"]["tcp"] == certain:
                break
        for exercise in ("redis", "pool"):
            assert got[exercise]["answers"] == expected[exercise]["answers"]
            assert got[exercise]["connections"] == expected[exercise]["connections"]
            check_paths(got[exercise]["paths"], PLAIN, FASTSOCK, ring=0)
        assert got["redis"]["paths"]["tcp"] == certain
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE) == 0
