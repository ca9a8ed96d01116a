"""The example programs on kernel TCP, under fastsock, and one end each way. The files arrive whole, and with both ends
under fastsock they come over the ring."""

import json
import random
import shutil
import subprocess
import sys

import pytest
from harness.processes import FASTSOCK, PLAIN, ROOT, WAYS, Server, answer_of, command, ended

EXAMPLES = ROOT / "examples"
SIZES = {"empty": 0, "one byte": 1, "größe.bin": 70_001, "large.bin": 40_000_000}
SIZES |= {f"small-{number}.bin": 100 * number for number in range(20)}
GOT = {"files": len(SIZES), "wrong": []}
ASGI = {**GOT, "bytes": sum(SIZES.values())}
ROWS = {  # the server and the client, what the client says in the end, and what the server does
    "http": ("http_server.py --directory files", "http_client.py PEER there", {**GOT, "files": 25}, {"requests": 26}),
    "ftp": (
        "ftp_server.py --directory there", "ftp_client.py PEER files", GOT, {"files_sent": 24, "files_received": 24},
    ),
    # so many requests that it moves in the middle, also on a busy machine
    "hello": ("hello_server.py", "hello_client.py PEER --requests 2000 --warm-up 50", {}, None),
    "asgi": ("asgi_server.py --loop uvloop", "asgi_client.py PEER files", ASGI, {"files": 24, "requests": 49}),
    "asgi on asyncio": (
        "asgi_server.py --loop asyncio", "asgi_client.py PEER files", ASGI, {"files": 24, "requests": 49},
    ),
    "rpc": (
        "rpc_server.py", "rpc_client.py PEER --calls 3000", {"counted": {"a": 3, "is": 2, "rose": 3}}, {"calls": 3001},
    ),
    "inetd": (
        f"super_server.py {EXAMPLES / 'inetd_service.py'}", "inetd_client.py PEER --lines 10000",
        {"lines": 10000, "wrong": 0}, {"started": 1},
    ),
}  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """A directory of files of many sizes, with names that need quoting."""
    directory = tmp_path / "files"
    directory.mkdir()
    for name, size in SIZES.items():
        (directory / name).write_bytes(random.Random(2).randbytes(size))
    return directory


@pytest.mark.parametrize(("server_way", "client_way"), WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_pair(name, server_way, client_way, files, tmp_path):
    serve, ask, expected, told = ROWS[name]
    (tmp_path / "there").mkdir()
    if name == "http":
        (files / "below").mkdir()
        (files / "below/deep.bin").write_bytes(b"deep" * 1000)
    script, *words = serve.split()
    stats = {PLAIN: None, FASTSOCK: tmp_path / "server.json"}[server_way]
    line = command(server_way, EXAMPLES / script, *words, stats=stats)
    with Server(line, tmp_path, stats) as server:
        script, *words = ask.replace("PEER", f"127.0.0.1:{server.port}").split()
        line = command(client_way, EXAMPLES / script, *words, stats=tmp_path / "client.json")
        done = ended(line, cwd=tmp_path)
        said = server.end().splitlines()
    assert done.stderr == ""
    assert expected.items() <= json.loads(done.stdout).items()
    assert [json.loads(line) for line in said[1:]] == ([told] if told else [])
    if name in ("http", "ftp"):
        assert subprocess.run(["diff", "-r", files, tmp_path / "there"], timeout=60, check=False).returncode == 0
    for end, way in (("server", server_way), ("client", client_way)):
        # The super-server's statistics tell only of a connection that it gave away.
        if way == FASTSOCK and (name, end) != ("inetd", "server"):
            counted = json.loads((tmp_path / f"{end}.json").read_text())
            ring, tcp = counted["connections_ring"], counted["connections_tcp"]
            # A service has its connection as standard streams, of a program that knows of none: on the kernel.
            assert ring > 0 if server_way == client_way and name != "inetd" else (ring, tcp > 0) == (0, True), counted


FORGETFUL = """
import asgi_server

class Files(dict):
    def __setitem__(self, name, data):
        super().__setitem__(name, data[:69_999])

asgi_server.files = Files()
asgi_server.main()
"""
LISTS = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=0, bind='127.0.0.1')"


@pytest.mark.parametrize(
    ("server", "client", "wrong"),
    [
        (FORGETFUL, ["asgi_client.py", "files"], ["größe.bin", "large.bin"]),
        (LISTS, ["http_client.py", "there"], ["one byte"]),
    ],
    ids=["the server cuts large files short", "the list has a wrong digest"],
)
def test_client_finds_a_wrong_file(server, client, wrong, files, tmp_path):
    (files / "SHA256SUMS").write_text("0" * 64 + "  one byte\n")
    folder, script = (files if server is LISTS else tmp_path), EXAMPLES / client[0]
    with Server(command(PLAIN, "-c", server), folder, PYTHONPATH=str(EXAMPLES)) as started:
        port = started.said(r"127\.0\.0\.1(?::| port )(\d+)")[1]
        done = ended(command(PLAIN, script, f"127.0.0.1:{port}", client[1]), 1, cwd=tmp_path)
    assert json.loads(done.stdout)["wrong"] == wrong


@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
@pytest.mark.parametrize("schedule", ["round-robin", "demand"])
def test_filters(tmp_path, way, schedule):
    """Every block is checked on its way out. Each copy of a filter has a connection to each copy of the next."""
    words = ["--image", "200000", "--block", "1000", "--copies", "2", "--schedule", schedule, "--partial", "10"]
    stats = tmp_path / "client.json"
    summary = answer_of(way, EXAMPLES / "filters/main.py", *words, "--images", "20", stats=stats)
    assert summary["blocks"] == 20 * 200 + 10
    assert summary["block_seconds"] > 0
    if way == FASTSOCK:  # the client's: two into the first filter, two out of the last
        assert json.loads(stats.read_text())["connections_ring"] == 4


SHARES = """
import json, sys
from pipeline import Pipeline, Stage

SLOW, NANOSECONDS, BLOCK = 1000.0, 200.0, 1000
stages = [Stage("repository"), Stage("transform", 3, NANOSECONDS, SLOW, waits=True)]
with Pipeline(stages, BLOCK, sys.argv[1]) as pipeline:
    pipeline.query(range(60))
    print(json.dumps(round(pipeline.reports[2] * 1e9 / NANOSECONDS / BLOCK / SLOW)))
"""


@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
def test_demand_driven_filters_send_a_slow_copy_less(way):
    """A block takes the slow copy 0.2 s. By demand it is sent two ahead and one for each that it begins; in turn, a
    third of all."""
    in_turn, by_demand = (
        answer_of(way, "-c", SHARES, schedule, PYTHONPATH=str(EXAMPLES / "filters"))
        for schedule in ("round-robin", "demand")
    )
    assert in_turn == 20
    assert 1 <= by_demand <= 12


BROKEN_FILTER = """
import sys
sys.path.insert(0, sys.path[0] + "/real")
import filters, worker

class Lossy(filters.Transform):
    def process(self, number, data, write):
        if number != 7:
            super().process(number, data, write)

filters.FILTERS["transform"] = Lossy
worker.main()
"""


def test_filters_client_finds_a_missing_block(tmp_path):
    """The check of the example can fail: here the workers lose block 7."""
    folder = tmp_path / "filters"
    shutil.copytree(EXAMPLES / "filters", folder)
    (folder / "real").mkdir()
    (folder / "worker.py").rename(folder / "real/worker.py")
    (folder / "worker.py").write_text(BROKEN_FILTER)
    done = ended([sys.executable, str(folder / "main.py"), "--image", "20000", "--block", "1000"], 1)
    assert "blocks [7] have not come" in done.stderr


def test_camera():
    """Both readers get each frame, or are told that they have lost it."""
    pytest.importorskip("numpy")
    done = ended([sys.executable, EXAMPLES / "camera.py", "--frames", "60", "--size", "160x120"])
    assert done.stderr == ""
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["frames"] + one["lost"], one["wrong"]) for one in told] == [(60, 0)] * 2
    assert all(one["frames"] for one in told)


def test_fan_out():
    """All sockets of all workers get each message, by the group and by Redis. A lost one would end it with an error."""
    for module in ("aiohttp", "redis", "starlette", "uvicorn", "websockets"):
        pytest.importorskip(module)
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    words = ["--workers", "2", "--messages", "60", "--size", "100", "--sockets", "2", "--turns", "1"]
    done = ended([sys.executable, EXAMPLES / "fanout.py", *words])
    alone, with_sockets = (json.loads(line) for line in done.stdout.splitlines())
    assert (alone["sockets_on_each_worker"], with_sockets["sockets_on_each_worker"]) == (0, 2)
    assert all(told[way]["messages_per_second"] > 0 for told in (alone, with_sockets) for way in ("group", "redis"))


USERS = {"camera.py", "fanout_server.py", "prometheus_exporter.py"}


def test_other_programs_do_not_know_about_fastsock():
    programs = sorted(path for path in EXAMPLES.rglob("*.py") if path.name not in USERS)
    assert len(programs) >= 20
    for program in programs:
        lines = program.read_text().splitlines()
        assert [line for line in lines if "import" in line and "fastsock" in line] == []
