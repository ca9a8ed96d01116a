"""Every command and every block of Python of the README, the first page, the tutorial, and the pages on asyncio,
settings and counters is run: as it stands there, or by the test named here. Recipes and examples have their own tests.
"""

import ast
import contextlib
import os
import re
import shlex
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.processes import Server, ended, port_for_later

from project.test_docs import defined_in

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DOCUMENTS = ["README.md", *(f"docs/{page}.md" for page in ("index", "tutorial", "asyncio", "settings", "statistics"))]

# ---- what the documents say ----------------------------------------------------------------------------------


def commands_of(text: str) -> list[str]:
    """The lines of indented blocks, without what is said about them."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for line in outside.splitlines() if line.startswith("    ")]
    return [words.strip() for line in lines for words in re.split(r" {2,}", line)]


def python_of(text: str) -> list[str]:
    """The blocks of Python that are no file of the tutorial."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


TEXTS = {name: (ROOT / name).read_text() for name in DOCUMENTS}
COMMANDS = list(dict.fromkeys(command for text in TEXTS.values() for command in commands_of(text)))
BLOCKS = {f"{name} {at}": block for name, text in TEXTS.items() for at, block in enumerate(python_of(text))}

# ---- commands ------------------------------------------------------------------------------------------------

SERVER = """
import socket, sys, threading

def serve(connection):
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)

with socket.create_server((HOST, PORT)) as listener:
    print("listening", flush=True)
    while True:
        threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""
"""In place of the reader's own server, at HOST and PORT."""

CLIENT = """
import socket, sys, time

def path(sock):
    fastsock = sys.modules.get("fastsock")
    told = fastsock.path_of(sock) if fastsock else None
    return {told.path, told.reason} if told else {"tcp"}

ends = time.monotonic() + 30
found = set()
while not found & EXPECTED and time.monotonic() < ends:
    with socket.create_connection((HOST, PORT)) as sock:
        for _ in range(2000):
            sock.sendall(b"hello")
            assert sock.recv(4096) == b"hello"
            if (found := path(sock)) & EXPECTED - {"tcp"}:
                break
print("path", *sorted(found & EXPECTED))
"""
"""In place of the reader's own client: asks until a connection has one of EXPECTED as its path, or as the reason."""

APP = """
import sys

async def app(scope, receive, send):
    assert scope["type"] == "http"
    fastsock = sys.modules.get("fastsock")
    way = "fastsock" if fastsock and fastsock.is_patched() else "plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": way.encode()})
"""
"""In place of the reader's own ASGI application: answers whether its process is patched."""


def command_line(command: str) -> tuple[list[str], dict[str, str]]:
    """A command of a document with this interpreter and this fastsock, and the settings before it."""
    words, settings = shlex.split(command.removesuffix("&")), {}
    while "=" in words[0]:
        name, _, settings[name] = words.pop(0).partition("=")
    programs = {"fastsock": [sys.executable, "-m", "fastsock"], "python": [sys.executable]}
    words = [*programs.get(words[0], words[:1]), *words[1:]]
    return [sys.executable if word == "python" else word for word in words], settings


def done(command: str, folder: Path) -> str:
    """What a command prints that ends by itself; fastsock's own words are on stderr."""
    words, settings = command_line(command)
    said = ended(words, cwd=folder, **settings)
    return said.stdout + said.stderr


@contextlib.contextmanager
def served(command: str, folder: Path, port: int) -> Iterator[None]:
    """A command that serves: it listens."""
    words, settings = command_line(command)
    with Server(words, folder, **settings) as server:
        server.listens(port)
        yield


def write_programs(folder: Path, port: int, expected: str) -> None:
    where = f"HOST, PORT, EXPECTED = '127.0.0.1', {port}, {{{expected!r}}}\n"
    (folder / "mypackage").mkdir()
    files = {"server.py": where + SERVER, "app.py": APP, "mypackage/__init__.py": ""}
    files |= dict.fromkeys(("client.py", "mypackage/client.py", "your_program.py"), where + CLIENT)
    for name, source in files.items():
        (folder / name).write_text(source)


@dataclass(frozen=True)
class Play:
    """How a command is run: as a client of `server`, or as the server, until a connection takes `path`; with `listens`
    as a server that answers a request under fastsock, told where to listen; or `alone`. What is printed has `parts`."""

    server: str = ""
    path: str = "ring"
    parts: tuple[str, ...] = ()
    listens: str = ""
    alone: bool = False

    def play(self, command: str, folder: Path) -> None:
        port = port_for_later()
        write_programs(folder, port, self.path)
        if self.listens:
            with (
                served(f"{command} {self.listens.format(port)}", folder, port),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer,
            ):
                assert answer.read() == b"fastsock"
        elif self.alone:
            (folder / "app.py").write_text("print('the program itself')\n")
            said = done(command, folder)
            assert [part for part in self.parts if part not in said] == []
        else:
            server, client = (self.server, command) if self.server else (command, "fastsock run client.py")
            with served(server, folder, port):
                said = done(client, folder)
            assert f"path {self.path}\n" in said
            assert [part for part in self.parts if not re.search(part, said)] == []


SERVE = "fastsock run server.py"
RUN = {
    f"{SERVE} --port 8000": Play(),
    "fastsock run client.py": Play(SERVE),
    "FASTSOCK_POLL_US=20 FASTSOCK_PORTS_ALLOWED=8000-8100 fastsock run server.py": Play("", "tcp"),
    "python client.py": Play("python server.py", "tcp"),
    "fastsock run app.py": Play(alone=True, parts=("the program itself",)),
    **dict.fromkeys(
        ("fastsock doctor client.py", "fastsock doctor -- python client.py"),
        Play(SERVE, parts=("moved to the ring: [1-9]",)),
    ),
    "FASTSOCK_ENABLED=0 fastsock run your_program.py": Play(SERVE, "tcp"),
    "fastsock run your_program.py": Play(SERVE),
    "fastsock doctor": Play(alone=True, parts=("connection",)),
    "fastsock doctor app.py": Play(alone=True, parts=("the program itself", "ring: no connection")),
    "fastsock ss": Play(alone=True),
    "fastsock run -m uvicorn app:app --workers 2": Play(listens="--port {}"),
    "fastsock run -m uvicorn app:app": Play(listens="--port {}"),
    "fastsock run -m gunicorn -k uvicorn_worker.UvicornWorker -w 4 app:app": Play(listens="-b 127.0.0.1:{}"),
    "fastsock run -m hypercorn -k uvloop app:app": Play(listens="-b 127.0.0.1:{}"),
}

SERVERS = {play.server for play in RUN.values()}
"""Run beside their clients."""

SCRAPES = "test_prometheus_scrapes_the_example"
ELSEWHERE = {
    "fastsock run redis-server --port 8001": "project/test_recipes.py::test_recipe",
    "docker run --name app IMAGE fastsock run server.py": "project/test_recipes.py::test_containers",
    "docker run --network container:app IMAGE fastsock run client.py": "project/test_recipes.py::test_containers",
    "./dev demo": "project/test_demo.py::test_three_pairs_take_the_ring_and_it_ends_with_what_to_try_next",
    "fastsock bench": "interface/test_tools.py::test_bench_measures_every_work_on_both_paths",
    "fastsock tcpdump -w - | wireshark -k -i -": "interface/test_tcpdump.py::test_wireshark_reads_it",
    "fastsock run examples/prometheus_exporter.py --port 9400": f"interface/test_metrics.py::{SCRAPES}",
    "curl http://127.0.0.1:9400/metrics": f"interface/test_metrics.py::{SCRAPES}",
}

OUTSIDE = {"./dev test", "pip install ."}
"""What runs these tests, and what `./dev wheel` does, in an empty environment."""


def test_every_command_of_the_documents_is_run():
    here = {*RUN, *SERVERS, *ELSEWHERE, *OUTSIDE}
    commands = {command.removesuffix("&").strip() for command in COMMANDS}
    assert (sorted(commands - here), sorted({*RUN, *ELSEWHERE, *OUTSIDE} - commands)) == ([], [])
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        assert name in defined_in(TESTS / file), test


@pytest.mark.parametrize("command", RUN)
def test_command(command, tmp_path):
    RUN[command].play(command, tmp_path)


# ---- blocks of Python ----------------------------------------------------------------------------------------

ITS_OWN_PEER = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
def serve():
    with listener, listener.accept()[0] as connection:
        while data := connection.recv(4096):
            connection.sendall(data)
peer = threading.Thread(target=serve)
peer.start()
with socket.create_connection(listener.getsockname()) as sock:
    while fastsock.path_of(sock).path != "ring":
        sock.sendall(b"hello")
        assert sock.recv(4096) == b"hello"
peer.join()
"""

A_LOOP = """
import asyncio, fastsock, socket
ran = []
async def main():
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    ran.append(writer.get_extra_info("fastsock").path)
    await reader.read()
    writer.close()
    listening.close()
"""

ITS_TRANSPORT = """
import asyncio, fastsock
async def look():
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    transport = writer.transport
    found = []
    for line in LINES:
        found.append(eval(line, globals(), locals()))
    writer.close()
    listening.close()
    return found
found = fastsock.run(look())
assert [type(path) for path in found] == [fastsock.Path] * 2, found
assert found[0] == found[1], found
"""

PYTHON = {
    "README.md 0": ("", ITS_OWN_PEER),
    "docs/asyncio.md 0": ("", "assert fastsock.is_patched()"),
    "docs/asyncio.md 1": (A_LOOP, "assert ran == ['tcp'] * RUNS, ran"),
    "docs/asyncio.md 2": (ITS_TRANSPORT, ""),
    "docs/asyncio.md 3": (
        "import fastsock\nfrom starlette.responses import JSONResponse",
        "import asyncio; assert b'ring' in asyncio.run(paths(None)).body",
    ),
    "docs/statistics.md 0": (
        "",
        "from prometheus_client import generate_latest; assert b'fastsock_io_bytes_total' in generate_latest()",
    ),
    "docs/settings.md 0": ("import fastsock", "assert fastsock.is_patched()"),
}
"""What has to be there before a block, and what has to be so behind it."""


def for_this_python(block: str) -> tuple[str, int]:
    """The ways to run a loop, each followed by one more run for the policy, and how many runs that makes."""
    kept, runs = [], 0
    for statement in ast.parse(block).body:
        source = "\n".join(block.splitlines()[statement.lineno - 1 : statement.end_lineno])
        since = re.search(r"# Python 3\.(\d+) and later", source)
        if (since and sys.version_info < (3, int(since[1]))) or (
            "gone in 3.16" in source and sys.version_info >= (3, 16)
        ):
            continue
        kept.append(source + ("\nasyncio.run(main())" if "EventLoopPolicy" in source else ""))
        runs += 1
    return "\n".join(kept), runs


def test_every_block_of_python_is_run():
    assert set(PYTHON) == set(BLOCKS)


@pytest.mark.parametrize("name", PYTHON)
def test_block_of_python(name, tmp_path):
    before, behind = PYTHON[name]
    block, runs = BLOCKS[name], 0
    if before is A_LOOP:
        block, runs = for_this_python(block)
        assert runs >= 3
    if before is ITS_TRANSPORT:
        given, block = f"LINES = {[line.partition('#')[0].strip() for line in block.splitlines()]!r}\n", ""
    else:
        given = ""
    port = port_for_later()
    given += f"PORT, RUNS = {port}, {runs}\n"
    program = "\n".join([given, before, block.replace("8000)", f"{port})"), behind])
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    ended([sys.executable, "program.py"], cwd=tmp_path, PYTHONPATH=os.pathsep.join([str(TESTS), str(ROOT)]))
