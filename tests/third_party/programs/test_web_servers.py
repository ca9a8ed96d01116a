"""nginx and haproxy with curl, wget and wrk: the same answers whichever end is under fastsock, and kept connections on the ring."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from harness.pairs import Task
from harness.processes import FASTSOCK, PLAIN, WAYS, Process, Server, ended, environment
from third_party.programs.web import (
    BIG, CERTIFICATE, EAGER, FILES, children, client, haproxy, is_connected, needs, nginx, program, python_server, state, wait_until,
)

pytestmark = needs("nginx", "curl", "wget")

TOLD = "%{http_code} %{size_download} %{num_connects} %{content_type}\\n"
FIRST = ("curl", "-sS", "--cacert", CERTIFICATE, "-o", "/dev/null", "BASE/small?[1-COUNT]", "--next")
OPTIONS = ("-sS", "--cacert", CERTIFICATE, "-w", TOLD)
CURL = (*FIRST, *OPTIONS)
WGET = ("wget", "-q", "-t", "1", f"--ca-certificate={CERTIFICATE}")
EXERCISES: dict[str, tuple[object, ...]] = {
    "kept": (*CURL, "BASE/small?[1-40]"),
    "files": (*CURL, "-o", "one#1", "BASE/{small,big,page.html,empty,missing}"),
    "parallel": (*CURL, "--no-progress-meter", "--parallel", "--parallel-max", "6", "-w", "", "-o", "one#1", "BASE/big?[1-8]"),
    "gzip": (*CURL, "--compressed", "-o", "one#1", "BASE/page.html?[1-5]"),
    "put": (*CURL, "-H", "Expect: 100-continue", "-T", "up", "BASE/up/file", "--next", *OPTIONS, "-o", "back", "BASE/up/file"),
    "delete": (*CURL, "-T", "part", "BASE/up/other", "--next", *OPTIONS, "-X", "DELETE", "BASE/up/other?[1-2]"),
    "post": (*CURL, "--data-binary", "@up", "BASE/small", "--next", *OPTIONS, "BASE/small"),
    "range": (*CURL, "-r", "5000000-5000100", "-o", "two", "BASE/big", "--next", *OPTIONS, "-r", "9000000-", "-o", "three", "BASE/big"),
    "head": (*CURL, "-I", "-o", "/dev/null", "BASE/big?[1-5]"),
    "once": ("curl", *OPTIONS, "-H", "Connection: close", "BASE/small?[1-5]"),
    "wget": (*WGET, "-O", "all", *["BASE/small"] * 40, "BASE/big", "BASE/page.html", "BASE/empty"),
    "wget continues": (*WGET, "-c", "-O", "part", "BASE/big"),
}
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


def compare(base: str, ways: tuple[str, str], folder: Path, expected: dict[str, Any], exercises: Mapping[str, tuple[object, ...]] = EXERCISES, loose: bool = False, **settings: str) -> None:
    """The exercises leave behind what they did before, and move where both ends are under fastsock."""
    both = ways == (FASTSOCK, FASTSOCK)
    for name, words in exercises.items():
        told = [str(word).replace("BASE", base) for word in words]
        got = client(ways[1], folder / "client", told, None if both and (loose or name in LOOSE) else both, **EAGER, **settings)
        assert got == expected.setdefault(name, got), (name, ways)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_nginx_serves_the_same(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for ways in WAYS:
        with nginx(ways[0], tmp_path / "-".join(ways), settings=EAGER, **CONFIGURATIONS[name]) as server:
            compare(server.base, ways, tmp_path, expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="workers of another user need root")
def test_workers_of_another_user(tmp_path: Path) -> None:
    """nginx drops root's rights after the fork; a client that trusts its user meets it."""
    expected: dict[str, Any] = {}
    for trust, ways in (("user", (PLAIN, PLAIN)), ("any", (FASTSOCK, FASTSOCK))):
        settings = {**EAGER, "FASTSOCK_TRUST": trust}
        with tempfile.TemporaryDirectory() as open_to_all:
            Path(open_to_all).chmod(0o755)
            with nginx(ways[0], Path(open_to_all), settings=settings, user="nobody nogroup") as server:
                compare(server.base, ways, tmp_path, expected, {"files": EXERCISES["files"]}, FASTSOCK_TRUST=trust)


# ---- ends ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def kept_busy(way: str, base: str, *more: str) -> Iterator[list[int]]:
    """A client that goes on and on, with 100 requests on a connection. Each of its runs ends well, and has all that it asked for."""
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


@pytest.mark.parametrize("ways", WAYS, ids="-".join)
@pytest.mark.parametrize("how", ["", "reuseport"])
def test_a_reload_loses_no_request(ways: tuple[str, str], how: str, tmp_path: Path) -> None:
    with nginx(ways[0], tmp_path, settings=EAGER, listen=how) as server:
        slow = Process(program(ways[1], "curl", "-sS", "-o", tmp_path / "slow", f"{server.base}/slow/big?[1-1]", "-r", "0-2000000"))
        with slow, kept_busy(ways[1], server.base) as runs:
            wait_until((tmp_path / "slow").exists)
            first = server.workers()
            for _ in range(3):
                before = len(runs)
                server.reload()
                wait_until(lambda before=before: len(runs) > before)
            assert slow.wait() == 0
            assert (tmp_path / "slow").read_bytes() == BIG[:2000001]
        wait_until(lambda: not server.workers() & first and len(server.workers()) == 2)
        assert [pid for pid in children(server.master) if state(pid) == "Z"] == []


@pytest.mark.parametrize("ways", WAYS, ids="-".join)
def test_who_quits_answers_first(ways: tuple[str, str], tmp_path: Path) -> None:
    with nginx(ways[0], tmp_path, settings=EAGER) as server:
        words = ["curl", "-sS", f"{server.base}/small?[1-20]", "-o", "/dev/null", "--next", "-r", "0-2000000", f"{server.base}/slow/big", "-o", tmp_path / "slow"]
        with Process(program(ways[1], *words), env=environment(**EAGER)) as slow:
            wait_until((tmp_path / "slow").exists)
            server.tell("quit")
            assert slow.wait() == 0
        assert (tmp_path / "slow").read_bytes() == BIG[:2000001]
        assert server.server.wait() == 0


@pytest.mark.parametrize("client", [("curl", "-sS", "-o"), ("wget", "-q", "-t", "1", "-O")], ids=lambda words: words[0])
def test_a_server_that_dies_in_the_middle(client: tuple[str, ...], tmp_path: Path) -> None:
    statuses = set()
    for ways in WAYS:
        with nginx(ways[0], tmp_path / "-".join(ways), settings=EAGER, daemon="on") as server:
            file = tmp_path / "part"
            words = program(ways[1], *client, file, f"{server.base}/slow/big")
            with Process(words, env=environment(**EAGER), stderr=subprocess.DEVNULL) as loading:
                wait_until(lambda: file.exists() and file.stat().st_size > 100_000)
                for pid in (*server.workers(), server.master):
                    os.kill(pid, signal.SIGKILL)
                statuses.add(loading.wait())
            assert BIG.startswith(file.read_bytes())
            file.unlink()
    assert len(statuses) == 1
    assert statuses != {0}


@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
def test_connections_leave_no_descriptors_behind(way: str, tmp_path: Path) -> None:
    with nginx(way, tmp_path, settings=EAGER, workers="1") as server:
        (worker,) = server.workers()
        client(way, tmp_path / "client", ["curl", "-sS", server.base + "/small?[1-20]"], None, **EAGER)
        wait_until(lambda: not is_connected(server.port))
        before = len(os.listdir(f"/proc/{worker}/fd"))
        for _ in range(15):
            for words in ((*CURL, "BASE/small"), EXERCISES["once"], EXERCISES["parallel"]):
                client(way, tmp_path / "client", [str(word).replace("BASE", server.base) for word in words], None, **EAGER)
        wait_until(lambda: not is_connected(server.port))
        assert len(os.listdir(f"/proc/{worker}/fd")) - before <= (20 if way == FASTSOCK else 0)  # sets of up to 16 peers are kept


# ---- nginx before others ------------------------------------------------------------------------------------------------

UPSTREAMS = {
    "uvicorn": "server 127.0.0.1:{port}; keepalive 8;",
    "waitress": "server 127.0.0.1:{port}; keepalive 8;",
    "gunicorn": "server 127.0.0.1:{port}; keepalive 8;",
    "uvicorn, a connection each": "server 127.0.0.1:{port};",
}
PAGES = {
    "kept": (*CURL, "BASE/small?[1-40]"),
    "large": (*CURL, "-o", "one#1", "BASE/large?[1-5]"),
    "stream": (*CURL, "-o", "one", "BASE/stream"),
    "missing": (*CURL, "BASE/missing"),
    "post": (*CURL, "-H", "Expect: 100-continue", "-H", "Content-Type: a/b", "--data-binary", "@up", "-o", "back", "BASE/echo?[1-2]"),
    "parallel": (*CURL, "--no-progress-meter", "--parallel", "-w", "", "-o", "one#1", "BASE/large?[1-6]"),
    "once": ("curl", *OPTIONS, "-H", "Connection: close", "BASE/small?[1-5]"),
}


@pytest.mark.parametrize("name", UPSTREAMS)
def test_nginx_before_a_server_in_python(name: str, tmp_path: Path) -> None:
    kind, each, _ = name.partition(",")
    expected: dict[str, Any] = {}
    for way, front in ((PLAIN, PLAIN), (FASTSOCK, PLAIN), (PLAIN, FASTSOCK), (FASTSOCK, FASTSOCK)):
        with python_server(way, kind, tmp_path, FASTSOCK_MOVE_POLLED="1", **EAGER) as behind:
            upstream = f"upstream behind {{ {UPSTREAMS[name].format(port=behind.port)} }}"
            location = 'location / { proxy_pass http://behind; proxy_set_header Connection ""; proxy_request_buffering off; }'
            with nginx(front, tmp_path / f"{way}-{front}", settings=EAGER, http=upstream, server=location) as server:
                for client_way in (PLAIN, FASTSOCK):
                    compare(server.base, (front, client_way), tmp_path, expected, PAGES)
        if way == front == FASTSOCK and not each and kind != "gunicorn":
            assert behind.stats()["connections_ring"] > 0, behind.stats()


# ---- haproxy ------------------------------------------------------------------------------------------------------------

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
RETRIES = ("--retry", "9", "--retry-all-errors", "--retry-delay", "1")
CHAINS = [(PLAIN,) * 3, (FASTSOCK,) * 3, (FASTSOCK, PLAIN, FASTSOCK), (PLAIN, FASTSOCK, PLAIN)]


@needs("haproxy")
@pytest.mark.parametrize("name", BALANCERS)
def test_haproxy_before_nginx(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for behind, front, user in CHAINS:
        folder = tmp_path / f"{behind}-{front}"
        with nginx(behind, folder / "nginx", settings=EAGER) as server:
            with haproxy(front, folder / "haproxy", server.port, EAGER, **BALANCERS[name]) as balancer:
                compare(balancer.base, (front, user), tmp_path, expected, STATIC, loose=name == "close")
                balancer.quit()


@needs("haproxy")
@pytest.mark.parametrize("name", ["http", "tcp, threads"])
def test_haproxy_before_a_server_in_python(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for behind, front, user in CHAINS:
        with python_server(behind, "uvicorn", tmp_path, **EAGER) as server:
            with haproxy(front, tmp_path / f"{behind}-{front}", server.port, EAGER, **BALANCERS[name]) as balancer:
                compare(balancer.base, (front, user), tmp_path, expected, DYNAMIC)
                balancer.quit()
        if behind == front == FASTSOCK:
            assert server.stats()["connections_ring"] > 0
            assert balancer.server.stats()["connections_ring"] >= 2  # to both sides


@needs("haproxy")
@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
def test_haproxy_notices_a_server_that_dies(way: str, tmp_path: Path) -> None:
    """By its health checks; and it answers for it."""
    with nginx(way, tmp_path / "nginx", settings=EAGER, daemon="on") as server:
        with haproxy(way, tmp_path / "haproxy", server.port, EAGER, defaults="option httpchk GET /small") as balancer:
            words = program(way, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", balancer.base + "/small?[1-30]")
            assert ended(words, **EAGER).stdout == "200" * 30
            for pid in (*server.workers(), server.master):
                os.kill(pid, signal.SIGKILL)
            balancer.server.said("Server behind/one is DOWN")
            assert ended(words, **EAGER).stdout == "503" * 30
            balancer.quit()


@needs("haproxy")
@pytest.mark.parametrize("ways", WAYS, ids="-".join)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_haproxys_successor_loses_no_request(ways: tuple[str, str], threads: str, tmp_path: Path) -> None:
    """`-sf`: the old process ends when its connections have. (What waits in its listener's queue is reset, in the kernel too.)"""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(nginx(PLAIN, tmp_path / "nginx"))
        balancer = stack.enter_context(haproxy(ways[0], tmp_path / "haproxy", server.port, EAGER, threads=threads))
        with kept_busy(ways[1], balancer.base, *RETRIES) as runs:
            for _ in range(3):
                before = len(runs)
                successor = Server([*balancer.words, "-sf", str(balancer.server.pid)], cwd=tmp_path, **EAGER)
                stack.enter_context(successor)
                old = balancer.server.process
                successor.until(lambda old=old: old.poll() is not None, "the old one has ended")
                assert old.returncode == 0
                balancer.server = successor
                wait_until(lambda before=before: len(runs) > before)
        balancer.quit()
