"""Servers and clients that nobody here wrote: whichever end is under fastsock, the answers are the same, and
connections take the path that they should, with the default settings."""

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, NATIVE, PLAIN, Server, answer_of, command, port_for_later

SCRIPTS = Path(__file__).parent / "scripts"
CERTIFICATE = Path(__file__).parents[3] / "bench/localhost.pem"
VARIABLES = {"PYTHONPATH": str(SCRIPTS), "SSL_CERT_FILE": str(CERTIFICATE)}
UNPAID = "sessions too short to pay"
TCP = {"too few operations", UNPAID, "looking for the peer", "peer does not use fastsock", "ended before it could move"}
"""Why a connection is on kernel TCP: it is short, or its peer has no fastsock."""


@dataclass(frozen=True)
class Row:
    server: tuple[object, ...]
    client: tuple[object, ...]
    """Its script and the words after the server's port or URL: a loop, and the exercises."""
    moves: dict[str, int]
    """How many connections of an exercise move at least, where both ends are under fastsock."""
    end: int = signal.SIGTERM
    native: bool = False
    """Nobody's sockets in the server are fastsock's."""
    forks: bool = False
    """It serves in other processes than the one that tells of itself."""
    also: str = ""
    """One more reason to be on kernel TCP."""
    scheme: str = "http"


def http(*server: object, alive: int = 1, **rest: object) -> Row:
    """A server of WSGI pages: how many connections a pool makes that move."""
    pools = ("requests", "urllib3", "httpx", "http_client")
    words = ("http_clients.py", "asyncio", *pools, "urllib", "curl")
    return Row(server, words, dict.fromkeys(pools, alive) if alive else {}, **rest)


def asgi(*server: object, loop: str = "uvloop", moves: bool = True, **rest: object) -> Row:
    """A server of pages and WebSockets. httpx asks a transport for its number when it takes it from its pool."""
    both = ("aiohttp", "websockets", "aiohttp_ws")
    words = ("http_clients.py", loop, *both, "async_httpx", "tornado", *(("curl",) if "scheme" not in rest else ()))
    rest = {"end": signal.SIGINT, "also": "descriptor detached", **rest}
    return Row(server, words, dict.fromkeys(both, 1) if moves else {}, **rest)


def echo(loop: str, library: str, *client: str) -> Row:
    """An echo server of a library on a loop; a client's loop, and the libraries that it uses on it."""
    return Row((SCRIPTS / "echo.py", "server", loop, library), ("echo.py", *client), dict.fromkeys(client[1:], 4))


SERVERS = SCRIPTS / "http_servers.py"
GUNICORN = ("-m", "gunicorn", "--bind", "127.0.0.1:0", "--keep-alive", "30", "pages:wsgi")
UVICORN = ("-m", "uvicorn", "--port", "0", "--no-access-log", "pages:asgi", "--loop")
TLS = ("--ssl-certfile", CERTIFICATE)
HYPERCORN = ("-m", "hypercorn", "--bind", "127.0.0.1:0", "pages:asgi", "-k")
GRANIAN = ("-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "pages:asgi", "--port", "PORT")
FTP, CALLS = ((SCRIPTS / name, "server") for name in ("ftp.py", "calls.py"))
OVER_TLS = {"client": ("ftp.py",), "moves": {"FTP": 1}, "also": "descriptor detached"}
REDIS = ("redis-server", "--bind", "127.0.0.1", "--save", "")
ROWS = {
    "http.server": http(SERVERS, "http.server"),
    "wsgiref": http(SERVERS, "wsgiref", alive=0),
    "werkzeug": http(SERVERS, "werkzeug", alive=0),
    "waitress": http(SERVERS, "waitress"),
    "cheroot": http(SERVERS, "cheroot"),
    "gunicorn sync": http(*GUNICORN, "--workers", "2", alive=0, forks=True),
    "gunicorn gthread": http(*GUNICORN, "--worker-class", "gthread", "--threads", "4", forks=True),
    "gunicorn gevent": http(*GUNICORN, "--worker-class", "gevent", alive=0, forks=True),
    "uvicorn uvloop": asgi(*UVICORN, "uvloop", loop="asyncio"),
    "uvicorn asyncio": asgi(*UVICORN, "asyncio", "--http", "h11"),
    "uvicorn uvloop TLS": asgi(*UVICORN, "uvloop", *TLS, loop="asyncio", scheme="https"),
    "uvicorn asyncio TLS": asgi(*UVICORN, "asyncio", *TLS, scheme="https"),
    "hypercorn uvloop": asgi(*HYPERCORN, "uvloop", forks=True),
    "hypercorn trio": asgi(*HYPERCORN, "trio", loop="asyncio", forks=True),
    "aiohttp uvloop": asgi(SERVERS, "aiohttp", "uvloop", end=signal.SIGTERM),
    "tornado": asgi(SERVERS, "tornado", loop="asyncio", end=signal.SIGTERM),
    "granian": asgi(*GRANIAN, moves=False, forks=True),
    "anyio uvloop": echo("uvloop", "anyio", "trio", "trio", "anyio"),
    "anyio trio": echo("trio", "anyio", "uvloop", "anyio", "tornado"),
    "trio": echo("trio", "trio", "trio", "trio", "anyio"),
    "tornado streams": echo("asyncio", "tornado", "asyncio", "anyio", "tornado"),
    "FTP": Row((*FTP, "FTPServer", CERTIFICATE), **OVER_TLS),
    "FTP threads": Row((*FTP, "ThreadedFTPServer", CERTIFICATE), **OVER_TLS),
    "FTP processes": Row((*FTP, "MultiprocessFTPServer", CERTIFICATE), forks=True, **OVER_TLS),
    "rpyc threads": Row((*CALLS, "ThreadedServer"), ("calls.py",), {"first": 1, "second": 1}),
    "rpyc processes": Row((*CALLS, "ForkingServer"), ("calls.py",), {"first": 1, "second": 1}, forks=True),
    "ssh": Row((SCRIPTS / "ssh.py", "server"), ("ssh.py",), {"ssh": 1}),
    "redis": Row((*REDIS, "--port", "PORT"), ("redis_client.py",), {}, native=True),
}


@pytest.mark.parametrize("name", ROWS)
def test_same_answers_on_the_expected_path(name, tmp_path):
    row = ROWS[name]

    def start(way):
        port = port_for_later()
        words = [port if word == "PORT" else word for word in row.server]
        way = NATIVE if shutil.which(str(words[0])) else way
        stats = tmp_path / "stats.json" if way == FASTSOCK else None
        server = Server(command(way, *words, stats=stats), cwd=tmp_path, stats=stats, **VARIABLES)
        return server, port if "PORT" in row.server else server.port

    def report(way, port):
        script, *words = row.client
        peer = f"{row.scheme}://127.0.0.1:{port}" if script == "http_clients.py" else port
        return answer_of(way, SCRIPTS / script, peer, *words, **VARIABLES)

    for server_way in (PLAIN, FASTSOCK):
        server, port = start(server_way)
        with server:
            if "PORT" in row.server:
                server.listens(port)
            if server_way == PLAIN:
                expected = report(PLAIN, port)
            for client_way in (FASTSOCK, PLAIN):
                check(row, expected, report, server_way, client_way, port)
            said = server.end(row.end)
        assert "fastsock" not in said
        assert "Traceback" not in said, said
    if server.stats_file and not row.forks:
        stats = server.stats()
        assert set(stats["fallback_reasons"]) <= {*TCP, row.also}
        assert stats["connections_tcp"] > 0
        assert stats["connections_ring"] >= max(row.moves.values(), default=0)


def check(row, expected, report, server_way, client_way, port):
    both = server_way == client_way == FASTSOCK and not row.native
    moved, ring = set(), 0
    for _ in range(10 if both else 1):  # on a busy machine a session may be over before it has moved
        got = report(client_way, port)
        for exercise, one in got.items():
            assert one["answers"] == expected[exercise]["answers"]
            assert set(one["tcp"]) <= {*TCP, row.also}, one["tcp"]
            ring += one["ring"]
            if one["ring"] >= row.moves.get(exercise, 0) or UNPAID in one["tcp"]:
                moved.add(exercise)
        if moved >= row.moves.keys():
            break
    assert not both or moved >= row.moves.keys(), got
    assert ring > 0 if both and row.moves else both or ring == 0
