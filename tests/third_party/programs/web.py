"""nginx, haproxy and servers in Python for these tests, each with a folder, a port and a configuration of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.processes import FASTSOCK, ROOT, Server, command, ended, listens, port_for_later
from interpose.test_interpose import RUN

CERTIFICATE = ROOT / "bench/localhost.pem"
SCRIPTS = Path(__file__).parent / "scripts"
EAGER = {"FASTSOCK_MOVE_AFTER": "0"}
COUNTS = (10, 300, 5000)
"""Requests before an exercise: more of them where the machine was too busy for the connection to move."""

BIG = random.Random(7).randbytes(10 << 20)
FILES = {"small": b"hello " * 20, "big": BIG, "page.html": b"<p>a page</p>\n" * 4000, "empty": b""}

NGINX = """
{user} daemon {daemon}; worker_processes {workers}; pid nginx.pid; error_log error.log info; {main}
events {{ worker_connections 256; {events} }}
http {{
    access_log off; client_max_body_size 20m; keepalive_requests 100000; gzip on; gzip_min_length 1;
    client_body_temp_path tmp/body; proxy_temp_path tmp/proxy; fastcgi_temp_path tmp/fastcgi;
    uwsgi_temp_path tmp/uwsgi; scgi_temp_path tmp/scgi; proxy_http_version 1.1; proxy_buffers 8 16k;
    {http}
    server {{
        listen 127.0.0.1:{port} {listen}; root html;
        location /up {{ dav_methods PUT DELETE; create_full_put_path on; client_body_buffer_size 64k; }}
        location /slow/ {{ alias html/; limit_rate 1m; }}
        {server}
    }}
}}
"""
TLS = f"ssl_certificate {CERTIFICATE}; ssl_certificate_key {CERTIFICATE};"

UVICORN = "-m uvicorn --port 0 --no-access-log pages:asgi"
GUNICORN = "-m gunicorn --bind 127.0.0.1:0 --keep-alive 60 --worker-class gthread --threads 4 pages:wsgi"
HAPROXY = """
global
    maxconn 500
    nbthread {threads}
    {main}
defaults
    mode {mode}
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    {defaults}
frontend front
    bind 127.0.0.1:{port}
    default_backend behind
backend behind
    {backend}
    server one 127.0.0.1:{behind} check inter 100ms {server}
"""


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def program(way: str, *words: object, stats: object = None) -> list[str]:
    """The words that start a program which is not Python."""
    told = ["--stats", stats] if stats else []
    return [str(word) for word in ((*RUN, *told, *words) if way == FASTSOCK else words)]


@dataclass
class Nginx:
    """A started nginx. The process of `server` is its master, unless it has made itself a daemon."""

    way: str
    folder: Path
    port: int
    scheme: str
    server: Server
    variables: dict[str, str]

    @property
    def base(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def master(self) -> int:
        return int((self.folder / "nginx.pid").read_text())

    def has_begun(self) -> bool:
        file = self.folder / "nginx.pid"
        return file.exists() and file.read_text().endswith("\n") and bool(self.workers())

    def workers(self) -> set[int]:
        return children(self.master)

    def tell(self, order: str) -> None:
        """`nginx -s ORDER`."""
        words = ["nginx", "-p", self.folder, "-c", self.folder / "nginx.conf", "-s", order]
        ended(program(self.way, *words), **self.variables)

    def reload(self) -> None:
        """Returns when new workers have taken over; old ones may have connections still."""
        before = self.workers()
        self.tell("reload")
        self.server.until(lambda: len(self.workers() - before) >= 2, "it has new workers")

    def problems(self) -> list[str]:
        """What it complains about: a worker that died, connections left open."""
        bad = ("[alert]", "[crit]", "[emerg]")
        return [
            line for line in (self.folder / "error.log").read_text().splitlines() if any(how in line for how in bad)
        ]

    def kill(self) -> None:
        for pid in (*self.workers(), self.master):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def nginx(
    way: str, folder: Path, scheme: str = "http", settings: dict[str, str] | None = None, **more: str
) -> Iterator[Nginx]:
    """Runs nginx with more lines for the parts of its configuration, and ends it: in order, and with a clean log."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "html/up"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        (folder / "html" / name).write_bytes(content)
    variables = (settings or {}) if way == FASTSOCK else {}
    values = {"daemon": "off", "workers": "2", "main": "", "events": "", "http": "", "listen": "", "server": "", **more}
    user = values.pop("user", "root")
    values["user"] = f"user {user};" if os.geteuid() == 0 else ""
    if scheme == "https":
        values["listen"] += " ssl"
        values["server"] += TLS
    port = port_for_later()
    (folder / "nginx.conf").write_text(NGINX.format(port=port, **values))
    words = program(way, "nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log")
    with Server(words, cwd=folder, **variables) as server:
        if values["daemon"] == "on":
            assert server.wait() == 0, server.text()
        one = Nginx(way, folder, port, scheme, server, variables)
        wait_until(lambda: listens(port) and one.has_begun())
        master = one.master
        try:
            yield one
            if values["daemon"] == "on":
                one.tell("quit")
                wait_until(lambda: not Path(f"/proc/{master}").exists())
            elif server.process.poll() is None:
                server.end(signal.SIGQUIT)
            assert one.problems() == []
        finally:
            if values["daemon"] == "on":
                for pid in (*children(master), master):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> set[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return {int(child) for child in path.read_text().split()} if path.exists() else set()


def state(pid: int) -> str:
    """The letter of proc(5); empty when the process has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def is_connected(port: int) -> bool:
    """Whether a connection of this host has the port, and an end of it is open still (proc(5), net/tcp)."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    is_open = ("01", "04", "05", "08")
    return any(f":{port:04X}" in local + peer and status in is_open for _, local, peer, status, *_ in lines)


def wait_until(look: Any, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < limit
        time.sleep(0.01)


@dataclass
class Haproxy:
    port: int
    server: Server
    words: list[str]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def quit(self) -> None:
        """Ends it softly: it has no connection any more."""
        self.server.end(signal.SIGUSR1)


@contextlib.contextmanager
def haproxy(
    way: str, folder: Path, behind: int, settings: dict[str, str] | None = None, **more: str
) -> Iterator[Haproxy]:
    """Runs haproxy before a server."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"main": "", "threads": "1", "mode": "http", "defaults": "", "backend": "", "server": "", **more}
    port = port_for_later()
    (folder / "haproxy.cfg").write_text(HAPROXY.format(port=port, behind=behind, **values))
    variables = (settings or {}) if way == FASTSOCK else {}
    words = program(way, "haproxy", "-db", "-f", folder / "haproxy.cfg", stats=folder / "haproxy.json")
    with Server(words, cwd=folder, stats=folder / "haproxy.json", **variables) as server:
        server.listens(port)
        yield Haproxy(port, server, words)


@contextlib.contextmanager
def python_server(way: str, name: str, folder: Path, **settings: str) -> Iterator[Server]:
    """Runs a server in Python of `pages`: uvicorn, or one of `http_servers.py`."""
    words = {"uvicorn": UVICORN, "gunicorn": GUNICORN}.get(name, f"{SCRIPTS / 'http_servers.py'} {name}").split()
    stats = folder / f"{name}.json"
    with Server(command(way, *words, stats=stats), folder, stats=stats, PYTHONPATH=str(SCRIPTS), **settings) as server:
        server.listens(server.port)
        yield server
        server.process.send_signal(signal.SIGINT if name == "uvicorn" else signal.SIGTERM)
        server.wait()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def client(way: str, folder: Path, words: Sequence[object], moves: bool | None, **settings: str) -> dict[str, Any]:
    """What a client leaves behind: its exit status, what it prints, and its files. `moves`: whether one of its
    connections is to be on the ring; None: it may be. COUNT in its words grows until it is."""
    for count in COUNTS:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "up").write_bytes(BIG)
        (folder / "part").write_bytes(BIG[:1_000_000])
        stats = folder / "stats.json"
        told = [str(word).replace("COUNT", str(count)) for word in words]
        done = ended(program(way, *told, stats=stats), None, cwd=folder, **settings)
        ring = json.loads(stats.read_text())["connections_ring"] if way == FASTSOCK else 0
        if ring or not moves:
            break
    assert moves is None or (ring > 0) == moves, done
    files = {path.name: digest(path.read_bytes()) for path in sorted(folder.iterdir()) if path != stats}
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr, **files}
