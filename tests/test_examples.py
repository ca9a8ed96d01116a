"""The example programs, as real processes: on kernel TCP, under fastsock, and one end each way.

Whatever the way, the files arrive whole, and with both ends under fastsock they come over the ring.
"""

import filecmp
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DEADLINE = 30
"""Seconds that any one process may take."""

WAYS = pytest.mark.parametrize(
    ("server_way", "client_way"),
    [("plain", "plain"), ("fastsock", "fastsock"), ("plain", "fastsock"), ("fastsock", "plain")],
)


class Server:
    """A started server program: its HOST:PORT, and what it says when it is told to end."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self.address = self._where_it_listens()
        except BaseException:  # nobody else knows of it yet
            self.process.kill()
            self.process.communicate()
            raise

    def _where_it_listens(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(DEADLINE), "the server does not start"
        line = self.process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), line + self.process.stderr.read()
        return line.removeprefix("listening on ").strip()

    def end(self):
        """Ask it to end with SIGTERM; gives what it printed last."""
        self.process.terminate()
        output, errors = self.process.communicate(timeout=DEADLINE)
        assert (self.process.returncode, errors) == (0, "")
        return output


@pytest.fixture
def serve(tmp_path):
    """Start an example as a server; with `way` fastsock, its statistics go to `server.json`."""
    servers = []

    def serve(way, script, *words):
        servers.append(Server(command(way, script, words, tmp_path / "server.json")))
        return servers[-1]

    yield serve
    for server in servers:
        server.process.kill()
        server.process.communicate()


@pytest.fixture
def client(tmp_path):
    """Run an example as a client, to its end; with `way` fastsock, its statistics go to `client.json`."""

    def client(way, script, *words):
        ended = subprocess.run(
            command(way, script, words, tmp_path / "client.json"),
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        [line] = ended.stdout.splitlines()
        return json.loads(line)

    return client


@pytest.fixture
def files(tmp_path):
    """A directory of files of many sizes, with names that need quoting."""
    directory = tmp_path / "files"
    directory.mkdir()
    generator = random.Random(2)
    sizes = {"empty": 0, "one byte": 1, "größe.bin": 70_001, "large.bin": 40_000_000}
    sizes |= {f"small-{number}.bin": 100 * number for number in range(20)}
    for name, size in sizes.items():
        (directory / name).write_bytes(generator.randbytes(size))
    return directory


def command(way, script, words, stats):
    runner = ["-m", "fastsock", "run", "--stats", stats] if way == "fastsock" else []
    return [str(word) for word in (sys.executable, *runner, EXAMPLES / script, *words)]


def environment():
    """With one setting of ours: the FTP server polls, and moves too."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    return {**mine, "FASTSOCK_MOVE_POLLED": "1"}


def assert_same_files(here, there):
    names = {path.relative_to(here) for path in here.rglob("*") if path.is_file()}
    assert {path.relative_to(there) for path in there.rglob("*") if path.is_file()} == names
    assert [name for name in names if not filecmp.cmp(here / name, there / name, shallow=False)] == []


def assert_counted(tmp_path, server_way, client_way, least):
    """Each end under fastsock counted at least `least` connections, on the path they had to take."""
    for end, way in (("server", server_way), ("client", client_way)):
        if way == "fastsock":
            stats = json.loads((tmp_path / f"{end}.json").read_text())
            took = {"ring": stats["connections_ring"], "tcp": stats["connections_tcp"]}
            if server_way == client_way:
                assert took["ring"] >= least, (end, stats)
                assert stats["bytes_sent"] + stats["bytes_received"] > 0
            else:
                assert took["ring"] == 0, (end, stats)
                assert took["tcp"] >= least, (end, stats)


@WAYS
def test_http(serve, client, files, tmp_path, server_way, client_way):
    (files / "below").mkdir()
    (files / "below/deep.bin").write_bytes(b"deep" * 1000)
    server = serve(server_way, "http_server.py", "--directory", files)
    summary = client(client_way, "http_client.py", server.address, tmp_path / "downloaded")
    assert_same_files(files, tmp_path / "downloaded")
    assert summary["files"] == 25
    assert summary["wrong"] == []
    assert summary["bytes"] == sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    assert json.loads(server.end()) == {"requests": 26}
    assert_counted(tmp_path, server_way, client_way, least=1)


@WAYS
def test_ftp(serve, client, files, tmp_path, server_way, client_way):
    served = tmp_path / "served"
    served.mkdir()
    server = serve(server_way, "ftp_server.py", "--directory", served)
    summary = client(client_way, "ftp_client.py", server.address, files)
    assert_same_files(files, served)
    assert summary["files"] == 24
    assert summary["wrong"] == []
    assert json.loads(server.end()) == {"files_sent": 24, "files_received": 24}
    # The control connection moves. A data connection moves if the search for its peer ends before the file does, which
    # on a busy machine the large file's may not.
    assert_counted(tmp_path, server_way, client_way, least=1)


@WAYS
def test_hello(serve, client, tmp_path, server_way, client_way):
    server = serve(server_way, "hello_server.py")
    words = ["--requests", "2000", "--warm-up", "50"]  # so many that it moves in the middle, also on a busy machine
    summary = client(client_way, "hello_client.py", server.address, *words)
    assert summary.keys() == {"requests_per_second", "p50_us", "p99_us"}
    assert 0 < summary["p50_us"] <= summary["p99_us"]
    assert server.end() == ""
    assert_counted(tmp_path, server_way, client_way, least=1)


def check_asgi(serve, client, files, tmp_path, server_way, client_way, loop):
    server = serve(server_way, "asgi_server.py", "--loop", loop)
    summary = client(client_way, "asgi_client.py", server.address, files)
    assert summary["wrong"] == []
    assert summary["files"] == 24
    assert summary["bytes"] == sum(path.stat().st_size for path in files.rglob("*"))
    assert json.loads(server.end()) == {"files": 24, "requests": 49}
    assert_counted(tmp_path, server_way, client_way, least=1)


@WAYS
def test_asgi(serve, client, files, tmp_path, server_way, client_way):
    check_asgi(serve, client, files, tmp_path, server_way, client_way, "uvloop")


def test_asgi_on_the_stdlib_loop(serve, client, files, tmp_path):
    check_asgi(serve, client, files, tmp_path, "fastsock", "fastsock", "asyncio")


FORGETFUL = """
import asgi_server

class Files(dict):
    def __setitem__(self, name, data):
        super().__setitem__(name, data[:69_999])

asgi_server.files = Files()
asgi_server.main()
"""


def test_asgi_client_finds_a_wrong_file(files, monkeypatch):
    """The check of the example can fail: this server cuts large files short."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    server = Server([sys.executable, "-c", FORGETFUL])
    try:
        ended = subprocess.run(
            command("plain", "asgi_client.py", [server.address, files], None),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    finally:
        server.process.kill()
        server.process.communicate()
    assert (ended.returncode, ended.stderr) == (1, "")
    assert json.loads(ended.stdout)["wrong"] == ["größe.bin", "large.bin"]


def test_http_client_finds_a_wrong_file(serve, files, tmp_path):
    """The check of the example can fail: the server's list is a file here, and one digest in it is wrong."""
    (files / "SHA256SUMS").write_text("0" * 64 + "  one byte\n")
    plain = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen(plain, cwd=files, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            port = server.stdout.readline().split()[5].decode()
            ended = subprocess.run(
                command("plain", "http_client.py", [f"127.0.0.1:{port}", tmp_path / "downloaded"], None),
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                check=False,
            )
        finally:
            server.kill()
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["wrong"] == ["one byte"]


@WAYS
def test_rpc(serve, client, tmp_path, server_way, client_way):
    server = serve(server_way, "rpc_server.py")
    summary = client(client_way, "rpc_client.py", server.address, "--calls", "3000")
    assert summary["counted"] == {"a": 3, "is": 2, "rose": 3}
    assert json.loads(server.end()) == {"calls": 3001}
    assert_counted(tmp_path, server_way, client_way, least=1)


@WAYS
def test_inetd(serve, client, tmp_path, server_way, client_way):
    """The service adopts descriptor 0, which somebody may poll: it moves because `environment` says so. The statistics
    of the super-server tell only of a connection that it gave away."""
    server = serve(server_way, "super_server.py", EXAMPLES / "inetd_service.py")
    summary = client(client_way, "inetd_client.py", server.address, "--lines", "10000")
    assert (summary["lines"], summary["wrong"]) == (10000, 0)
    assert json.loads(server.end()) == {"started": 1}
    if client_way == "fastsock":
        stats = json.loads((tmp_path / "client.json").read_text())
        assert stats["connections_ring"] == (server_way == "fastsock"), stats


@pytest.mark.parametrize("way", ["plain", "fastsock"])
@pytest.mark.parametrize("schedule", ["round-robin", "demand"])
def test_filters(client, tmp_path, way, schedule):
    """Every block is checked on its way out. Each copy of a filter has a connection to each copy of the next."""
    words = ["--image", "200000", "--block", "1000", "--copies", "2", "--schedule", schedule, "--partial", "10"]
    words += ["--images", "20"]
    summary = client(way, "filters/main.py", *words)
    assert summary["blocks"] == 20 * 200 + 10
    assert summary["block_seconds"] > 0
    if way == "fastsock":
        stats = json.loads((tmp_path / "client.json").read_text())
        assert stats["connections_ring"] == 4, stats  # the client's: two into the first filter, two out of the last


SHARES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pipeline import Pipeline, Stage

SLOW, NANOSECONDS, BLOCK = 1000.0, 200.0, 1000
stages = [Stage("repository"), Stage("transform", 3, NANOSECONDS, SLOW, waits=True)]
with Pipeline(stages, BLOCK, sys.argv[2]) as pipeline:
    pipeline.query(range(60))
    print(json.dumps(round(pipeline.reports[2] * 1e9 / NANOSECONDS / BLOCK / SLOW)))
"""


@pytest.mark.parametrize("way", ["plain", "fastsock"])
def test_demand_driven_filters_send_a_slow_copy_less(tmp_path, way):
    """A block takes the slow copy 0.2 s. By demand it is sent two ahead and one for each that it begins; in turn, a
    third of all."""
    program = tmp_path / "shares.py"
    program.write_text(SHARES)
    run = ["-m", "fastsock", "run"] if way == "fastsock" else []

    def blocks_of_the_slow_copy(schedule):
        words = [sys.executable, *run, str(program), str(EXAMPLES / "filters"), schedule]
        ended = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        return json.loads(ended.stdout)

    assert blocks_of_the_slow_copy("round-robin") == 20
    assert 1 <= blocks_of_the_slow_copy("demand") <= 12


BROKEN_FILTER = """
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
    (folder / "worker.py").write_text(
        f"import sys\nsys.path.insert(0, {str(folder / 'real')!r})\nsys.modules.pop('worker', None)\n" + BROKEN_FILTER
    )
    ended = subprocess.run(
        [sys.executable, folder / "main.py", "--image", "20000", "--block", "1000"],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "blocks [7] have not come" in ended.stderr


def test_programs_do_not_know_about_fastsock():
    programs = sorted(path for path in EXAMPLES.rglob("*.py") if path.name != "prometheus_exporter.py")
    assert len(programs) >= 19
    for program in programs:
        lines = program.read_text().splitlines()
        assert [line for line in lines if "import" in line and "fastsock" in line] == []
