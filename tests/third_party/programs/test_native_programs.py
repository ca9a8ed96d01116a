"""Servers and clients that are not Python, as they are: the same answers under `fastsock run`, and on the ring."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, PLAIN, ROOT, Server, answer_of, ended, port_for_later
from interpose.test_interpose import RUN

REDIS = ("redis-server", "--bind", "127.0.0.1", "--save", "", "--port")
SCRIPT = "for i = 1, 20 do redis.call('set', 'k' .. i, string.rep('x', i * 5000)) end return redis.call('dbsize')"
SESSIONS = {
    "many small": ("-r", "200", "incr", "counter"),
    "script": ("-r", "30", "eval", SCRIPT, "0"),
    "large": ("-r", "40", "get", "k20"),
    "blocking": ("-r", "20", "blpop", "nothing", "0.01"),
    "errors": ("-r", "20", "incr", "k1"),
    "everything": ("-r", "20", "scan", "0", "count", "100", "type", "string", "match", "k1"),
}


@contextlib.contextmanager
def redis(way: str, folder: Path) -> Iterator[tuple[Server, int]]:
    port = port_for_later()
    stats = folder / f"{way}.json"
    words = [*((*RUN, "--stats", str(stats)) if way == FASTSOCK else ()), *REDIS, str(port)]
    with Server(words, cwd=folder, stats=stats) as server:
        server.listens(port)
        yield server, port
        server.end()


def session(way: str, port: int, folder: Path, words: tuple[str, ...]) -> tuple[str, int]:
    """What redis-cli prints, and how many of its connections were on the ring."""
    stats = folder / "client.json"
    client = ["redis-cli", "-p", str(port), *words]
    done = ended([*RUN, "--stats", stats, *client] if way == FASTSOCK else client)
    return done.stdout, json.loads(stats.read_text())["connections_ring"] if way == FASTSOCK else 0


def test_redis_answers_the_same(tmp_path: Path) -> None:
    answers: dict[str, list[str]] = {}
    for server_way in (PLAIN, FASTSOCK):
        for client_way in (PLAIN, FASTSOCK):
            with redis(server_way, tmp_path) as (_, port):
                got = [session(client_way, port, tmp_path, words) for words in SESSIONS.values()]
            answers[f"{server_way} {client_way}"] = [text for text, _ in got]
            ring = sum(ring for _, ring in got)  # on a busy machine a session may be over before it has moved
            assert ring >= len(SESSIONS) // 2 if server_way == client_way == FASTSOCK else ring == 0
    first = answers.pop(f"{PLAIN} {PLAIN}")
    assert first[0].splitlines()[-1] == "200"
    for way, texts in answers.items():
        assert texts == first, way


@pytest.mark.parametrize("more", [(), ("-P", "16"), ("-d", "100000"), ("--threads", "2"), ("-k", "0")], ids=" ".join)
def test_redis_benchmark_ends_well(more: tuple[str, ...], tmp_path: Path) -> None:
    tests = ("get", "set", "lpush", "mset")
    requests = "40000" if "-P" in more else "4000"  # so that every connection has time to move
    with redis(FASTSOCK, tmp_path) as (server, port):
        words = ["redis-benchmark", "-p", str(port), "-t", ",".join(tests), "-n", requests, "-c", "20", "-q", *more]
        done = ended([*RUN, "--stats", tmp_path / "c.json", *words])
        lines = re.findall(r"^(?:.*\r)*(\w+).*: [\d.]+ requests per second", done.stdout, re.MULTILINE)
        assert len(lines) == len(tests)
        assert "rror" not in done.stdout + done.stderr
    client = json.loads((tmp_path / "c.json").read_text())
    if "-k" in more:  # a connection for each request: too short to move
        assert client["connections_ring"] == 0
    else:
        assert client["connections_ring"] >= 20
        assert server.stats()["connections_ring"] >= 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_redis_moves_the_connections_of_users_that_it_trusts_and_that_trust_it() -> None:
    users = {50002: "user,50001", 50003: "user,50001", 50004: "user"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)

        def run(user: int) -> list[object]:
            become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            return [*become, *RUN, "--stats", folder / f"{user}.json"]

        port = port_for_later()
        words = [str(word) for word in (*run(50001), *REDIS, port)]
        with Server(words, folder, folder / "50001.json", FASTSOCK_TRUST="user,50002,50004") as server:
            server.listens(port)
            asked = ("redis-benchmark", "-p", port, "-t", "get", "-n", "8000", "-c", "20", "-q")
            for user, trust in users.items():
                assert "requests per second" in ended([*run(user), *asked], FASTSOCK_TRUST=trust).stdout
            server.end()
        told = {user: json.loads((folder / f"{user}.json").read_text()) for user in (50001, *users)}
    assert told[50001]["connections_ring"] == told[50002]["connections_ring"] == 20
    assert told[50003]["connections_ring"] == told[50004]["connections_ring"] == 0


def test_redis_py_and_a_redis_on_the_ring(tmp_path: Path) -> None:
    script = ROOT / "tests/third_party/programs/scripts/redis_client.py"
    found = {}
    for way in (PLAIN, FASTSOCK):
        with redis(way, tmp_path) as (_, port):
            found[way] = answer_of(way, script, port)
    for exercise, one in found[FASTSOCK].items():
        assert one["answers"] == found[PLAIN][exercise]["answers"]
    assert sum(one["ring"] for one in found[FASTSOCK].values()) > 0
