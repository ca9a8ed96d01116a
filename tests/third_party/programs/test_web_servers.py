"""nginx and haproxy with curl and wget: the same answers whichever end is under fastsock, and kept connections on the
ring. The servers and what they serve: `web.py`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from harness.pairs import Task
from harness.processes import FASTSOCK, PLAIN, WAYS, Process, Server, ended, environment

from third_party.programs import web
from third_party.programs.web import BIG, CERTIFICATE, EAGER, FILES, haproxy, nginx, program, python_server, wait_until

pytestmark = web.needs("nginx", "curl", "wget")

OPTIONS = f"-sS --cacert {CERTIFICATE} -w %{{http_code}},%{{size_download}},%{{num_connects}},%{{content_type}}\\n"
CURL = f"curl -sS --cacert {CERTIFICATE} -o /dev/null BASE/small?[1-COUNT] --next {OPTIONS}"
WGET = f"wget -q -t 1 --ca-certificate={CERTIFICATE}"
UPLOAD = f"{CURL} -H Expect:100-continue -T up BASE/up/file --next {OPTIONS}"
EXERCISES = {
    "kept": f"{CURL} BASE/small?[1-40]",
    "files": f"{CURL} -o one#1 BASE/{{small,big,page.html,empty,missing}}",
    "parallel": f"{CURL} --no-progress-meter --parallel --parallel-max 6 -w %{{http_code}} -o one#1 BASE/big?[1-8]",
    "gzip": f"{CURL} --compressed -o one#1 BASE/page.html?[1-5]",
    "put": f"{UPLOAD} -o back BASE/up/file",
    "delete": f"{UPLOAD} -X DELETE BASE/up/file?[1-2]",
    "post": f"{CURL} --data-binary @up BASE/small --next {OPTIONS} BASE/small",
    "range": f"{CURL} -r 5000000-5000100 -o two BASE/big --next {OPTIONS} -r 9000000- -o three BASE/big",
    "head": f"{CURL} -I -o /dev/null BASE/big?[1-5]",
    "once": f"curl {OPTIONS} -H Connection:close BASE/small?[1-5]",
    "wget": f"{WGET} -O all {'BASE/small ' * 40} BASE/big BASE/page.html BASE/empty",
    "wget continues": f"{WGET} -c -O part BASE/big",
}
"""The client's words. The first COUNT requests are there for the connection to move."""

LOOSE = {"once", "wget", "wget continues"}
"""Exercises whose connections may be too short to move."""

CONFIGURATIONS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "sendfile": {"http": "sendfile on; tcp_nopush on;"},
    "sendfile at once": {"http": "sendfile on; tcp_nopush off; tcp_nodelay off; sendfile_max_chunk 512k;"},
    "threads": {"http": "sendfile on; aio threads;"},
    "accept_mutex": {"events": "accept_mutex on;"},
    "reuseport": {"listen": "reuseport", "events": "multi_accept on;"},
    "TLS": {"scheme": "https"},
    "daemon": {"daemon": "on"},
    "buffers": {"http": "output_buffers 1 4k; postpone_output 0; sendfile off; directio 4m;"},
}


def leaves(way: str, base: str, folder: Path, words: str, moves: bool | None, **settings: str) -> dict[str, Any]:
    return web.client(way, folder / "client", words.replace("BASE", base).split(), moves, **EAGER, **settings)


def compare(
    base: str,
    ways: tuple[str, str],
    folder: Path,
    expected: dict[str, Any],
    exercises: Mapping[str, str] = EXERCISES,
    loose: bool = False,
    **settings: str,
) -> None:
    """The exercises leave behind what they did before, and move where both ends are under fastsock."""
    for name, words in exercises.items():
        moves = ways == (FASTSOCK, FASTSOCK)
        got = leaves(ways[1], base, folder, words, None if moves and (loose or name in LOOSE) else moves, **settings)
        assert got == expected.setdefault(name, got), (name, ways)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_nginx_serves_the_same(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for ways in WAYS:
        with nginx(ways[0], tmp_path / "-".join(ways), settings=EAGER, **CONFIGURATIONS[name]) as server:
            compare(server.base, ways, tmp_path, expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="workers of another user need root")
def test_workers_of_another_user(tmp_path: Path) -> None:
    """nginx drops root's rights after the fork; a client that trusts their user meets them."""
    expected: dict[str, Any] = {}
    for trust, ways in (("user", (PLAIN, PLAIN)), ("user,nobody", (FASTSOCK, FASTSOCK))):
        settings = {**EAGER, "FASTSOCK_TRUST": trust}
        with tempfile.TemporaryDirectory() as open_to_all:
            Path(open_to_all).chmod(0o755)
            with nginx(ways[0], Path(open_to_all), settings=settings, user="nobody nogroup") as server:
                compare(server.base, ways, tmp_path, expected, {"files": EXERCISES["files"]}, FASTSOCK_TRUST=trust)


# ---- ends --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def kept_busy(way: str, base: str, *more: str) -> Iterator[list[int]]:
    """A client that goes on and on, with 100 requests on a connection. Each run ends well, and has all that it asked
    for. Counts them."""
    runs: list[int] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set() or len(runs) < 2:
            done = ended(program(way, "curl", "-sS", *more, f"{base}/small?[1-100]"), **EAGER)
            assert done.stdout.encode() == FILES["small"] * 100
            runs.append(len(runs))

    task = Task(go_on)
    try:
        yield runs
    finally:
        over.set()
        task.result()


@contextlib.contextmanager
def slow_download(way: str, base: str, folder: Path) -> Iterator[None]:
    """A response is under way, behind 20 others on its connection. It comes whole, whatever happens meanwhile."""
    file = folder / "slow"
    words = ["curl", "-sS", f"{base}/small?[1-20]", "-o", "/dev/null", "--next", "-r", "0-2000000", "-o", file]
    with Process(program(way, *words, f"{base}/slow/big"), env=environment(**EAGER)) as client:
        wait_until(file.exists)
        yield
        assert client.wait() == 0
    assert file.read_bytes() == BIG[:2000001]


@pytest.mark.parametrize("ways", WAYS, ids="-".join)
@pytest.mark.parametrize("how", ["", "reuseport"])
def test_a_reload_loses_no_request(ways: tuple[str, str], how: str, tmp_path: Path) -> None:
    with nginx(ways[0], tmp_path, settings=EAGER, listen=how) as server:
        first = server.workers()
        with slow_download(ways[1], server.base, tmp_path), kept_busy(ways[1], server.base) as runs:
            for _ in range(3):
                before = len(runs)
                server.reload()
                wait_until(lambda before=before: len(runs) > before)
        wait_until(lambda: not server.workers() & first and len(server.workers()) == 2)
        assert [pid for pid in web.children(server.master) if web.state(pid) == "Z"] == []


@pytest.mark.parametrize("ways", WAYS, ids="-".join)
def test_who_quits_answers_first(ways: tuple[str, str], tmp_path: Path) -> None:
    with nginx(ways[0], tmp_path, settings=EAGER) as server:
        with slow_download(ways[1], server.base, tmp_path):
            server.tell("quit")
        assert server.server.wait() == 0


@pytest.mark.parametrize("client", ["curl -sS -o", "wget -q -t 1 -O"])
def test_a_server_that_dies_in_the_middle(client: str, tmp_path: Path) -> None:
    statuses = set()
    for ways in WAYS:
        folder = tmp_path / "-".join(ways)
        with nginx(ways[0], folder, settings=EAGER, daemon="on") as server:
            words = program(ways[1], *client.split(), folder / "part", f"{server.base}/slow/big")
            with Process(words, env=environment(**EAGER), stderr=subprocess.DEVNULL) as loading:
                wait_until(lambda folder=folder: any(one.stat().st_size > 100_000 for one in folder.glob("part")))
                server.kill()
                statuses.add(loading.wait())
        assert BIG.startswith((folder / "part").read_bytes())
    assert len(statuses) == 1
    assert statuses != {0}


@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
def test_connections_leave_no_descriptors_behind(way: str, tmp_path: Path) -> None:
    """The event sets of some processes are kept, as they may come again."""
    with nginx(way, tmp_path, settings=EAGER, workers="1") as server:
        (worker,) = server.workers()
        counts = []
        for rounds in (1, 15):
            for _ in range(rounds):
                for name in ("kept", "once", "parallel"):
                    leaves(way, server.base, tmp_path, EXERCISES[name], None)
            wait_until(lambda: not web.is_connected(server.port))
            counts.append(len(os.listdir(f"/proc/{worker}/fd")))
        assert counts[1] - counts[0] <= (20 if way == FASTSOCK else 0)


# ---- nginx before others ---------------------------------------------------------------------------------------------

UPSTREAMS = {"uvicorn": "keepalive 8;", "waitress": "keepalive 8;", "gunicorn": "keepalive 8;", "uvicorn, once": ""}
PAGES = {
    "kept": f"{CURL} BASE/small?[1-40]",
    "large": f"{CURL} -o one#1 BASE/large?[1-5]",
    "stream": f"{CURL} -o one BASE/stream",
    "missing": f"{CURL} BASE/missing",
    "post": f"{CURL} -H Expect:100-continue -H Content-Type:a/b --data-binary @up -o back BASE/echo?[1-2]",
    "parallel": f"{CURL} --no-progress-meter --parallel -w %{{http_code}} -o one#1 BASE/large?[1-6]",
    "once": f"curl {OPTIONS} -H Connection:close BASE/small?[1-5]",
}
PROXY = 'location / { proxy_pass http://behind; proxy_set_header Connection ""; proxy_request_buffering off; }'


@pytest.mark.parametrize("name", UPSTREAMS)
def test_nginx_before_a_server_in_python(name: str, tmp_path: Path) -> None:
    kind, once, _ = name.partition(",")
    expected: dict[str, Any] = {}
    for way, front, *clients in (
        (PLAIN, PLAIN, PLAIN, FASTSOCK),
        (FASTSOCK, PLAIN, FASTSOCK),
        (PLAIN, FASTSOCK, PLAIN),
        (FASTSOCK, FASTSOCK, PLAIN, FASTSOCK),
    ):
        with python_server(way, kind, tmp_path, **EAGER) as behind:
            upstream = f"upstream behind {{ server 127.0.0.1:{behind.port}; {UPSTREAMS[name]} }}"
            with nginx(front, tmp_path / f"{way}-{front}", settings=EAGER, http=upstream, server=PROXY) as server:
                for client in clients:
                    compare(server.base, (front, client), tmp_path, expected, PAGES)
        if way == front == FASTSOCK and not once and kind != "gunicorn":  # its workers write no statistics
            assert behind.stats()["connections_ring"] > 0


# ---- haproxy --------------------------------------------------------------------------------------------------------

BALANCERS: dict[str, dict[str, str]] = {
    "http": {},
    "threads": {"threads": "2", "defaults": "option httpchk GET /small\n    http-reuse always"},
    "tcp": {"mode": "tcp"},
    "tcp, threads": {"mode": "tcp", "threads": "2"},
    "poll": {"main": "noepoll"},
    "select": {"main": "noepoll\n    nopoll"},
    "splice": {"mode": "tcp", "defaults": "option splice-auto"},
    "close": {"defaults": "option httpclose"},
}
STATIC = {name: EXERCISES[name] for name in ("kept", "files", "parallel", "put", "post", "range", "once")}
DYNAMIC = {name: PAGES[name] for name in ("kept", "large", "post", "missing")}
CHAINS = [(PLAIN,) * 3, (FASTSOCK,) * 3, (FASTSOCK, PLAIN, FASTSOCK), (PLAIN, FASTSOCK, PLAIN)]
"""The server, haproxy, and the client."""

RETRIES = ("--retry", "9", "--retry-all-errors", "--retry-delay", "1")


@web.needs("haproxy")
@pytest.mark.parametrize("name", BALANCERS)
def test_haproxy_before_nginx(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for behind, front, user in CHAINS:
        folder = tmp_path / f"{behind}-{front}"
        with (
            nginx(behind, folder / "nginx", settings=EAGER) as server,
            haproxy(front, folder / "haproxy", server.port, EAGER, **BALANCERS[name]) as balancer,
        ):
            compare(balancer.base, (front, user), tmp_path, expected, STATIC, loose=name == "close")
            balancer.quit()


@web.needs("haproxy")
@pytest.mark.parametrize("name", ["http", "tcp, threads"])
def test_haproxy_before_a_server_in_python(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for behind, front, user in CHAINS:
        with (
            python_server(behind, "uvicorn", tmp_path, **EAGER) as server,
            haproxy(front, tmp_path / f"{behind}-{front}", server.port, EAGER, **BALANCERS[name]) as balancer,
        ):
            compare(balancer.base, (front, user), tmp_path, expected, DYNAMIC)
            balancer.quit()
        if behind == front == FASTSOCK:
            assert server.stats()["connections_ring"] > 0
            assert balancer.server.stats()["connections_ring"] >= 2  # to both sides


@web.needs("haproxy")
@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
def test_haproxy_notices_a_server_that_dies(way: str, tmp_path: Path) -> None:
    """By its health checks; and it answers for it."""
    checks = "option httpchk GET /small"
    with (
        nginx(way, tmp_path / "nginx", settings=EAGER, daemon="on") as server,
        haproxy(way, tmp_path / "haproxy", server.port, EAGER, defaults=checks) as balancer,
    ):
        words = program(way, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"{balancer.base}/small?[1-30]")
        assert ended(words, **EAGER).stdout == "200" * 30
        server.kill()
        balancer.server.said("Server behind/one is DOWN")
        assert ended(words, **EAGER).stdout == "503" * 30
        balancer.quit()


@web.needs("haproxy")
@pytest.mark.parametrize("ways", WAYS, ids="-".join)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_haproxys_successor_loses_no_request(ways: tuple[str, str], threads: str, tmp_path: Path) -> None:
    """`-sf`: the old process ends when its connections have. (What waits in its listener's queue then is reset by the
    kernel: the client asks again.)"""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(nginx(PLAIN, tmp_path / "nginx"))
        balancer = stack.enter_context(haproxy(ways[0], tmp_path / "haproxy", server.port, EAGER, threads=threads))
        with kept_busy(ways[1], balancer.base, *RETRIES) as runs:
            for _ in range(3):
                before, old = len(runs), balancer.server.process
                successor = Server([*balancer.words, "-sf", str(old.pid)], cwd=tmp_path, **EAGER)
                balancer.server = stack.enter_context(successor)
                successor.until(lambda old=old: old.poll() is not None, "the old one has ended")
                assert old.returncode == 0
                wait_until(lambda before=before: len(runs) > before)
        balancer.quit()
