"""Every recipe of the documents, run as it stands there: its connections move, and it has its figures."""

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from harness.hosts import two_hosts
from harness.processes import FASTSOCK, ROOT, Server, command, ended, port_for_later
from third_party.programs.native import ordinary_user
from third_party.programs.test_caches_and_databases import binaries

from project.test_snippets import CLIENT, SERVER, command_line


def recipes(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


RECIPES = recipes("recipes.md")


def files_of(text: str) -> dict[str, str]:
    return dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```', text, re.MULTILINE | re.DOTALL))


def whole(text: str) -> str:
    """A recipe, with the files in it that it says are another recipe's: `FILE` is that of "NAME"."""
    for names, other in re.findall(r'^(`.*`) (?:is that|are those) of "(.*?)"', text, re.MULTILINE):
        files = files_of(RECIPES[other])
        for name in re.findall(r"`(\S+)`", names):
            text += f'\n```python title="{name}"\n{files[name]}```\n'
    return text


PROGRAMS = ("nginx", "redis-server", "memcached", "postgres")
UNPRIVILEGED = r"\b(?:initdb|memcached)\b"
"""In the command lines of programs that do not run as root."""


def found(program: str) -> bool:
    return bool(shutil.which(program)) or (program == "postgres" and binaries() is not None)


RUN = {name: whole(text) for name, text in RECIPES.items() if name != "Containers"}


def play(text: str, tmp_path: Path) -> dict[str, int]:
    """Runs a recipe, with a free port in place of each that it names: how many ends of connections moved in the
    processes of each of its lines."""
    ports = {port: str(port_for_later()) for port in sorted(set(re.findall(r"\b8\d{3}\b", text)))}
    text = re.sub(r"\b8\d{3}\b", lambda found: ports[found[0]], text)
    unprivileged = ordinary_user() if re.search(UNPRIVILEGED, text) else []
    path = os.pathsep.join([os.environ["PATH"], *map(str, filter(None, [binaries()]))])
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    reports = {}
    for name, source in files_of(text).items():
        (folder / name).write_text(source)
    (commands,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    with contextlib.ExitStack() as stack:
        for line in commands.splitlines():
            words, settings = command_line(line)
            reports[line] = Path(tempfile.mkdtemp(dir=folder))
            settings |= {"FASTSOCK_RUN_REPORT": str(reports[line]), "PATH": path}
            words = [*unprivileged, *words]
            if not line.endswith("&"):
                ended(words, cwd=folder, **settings)
                continue
            server = stack.enter_context(Server(words, folder, **settings))
            told = line + "".join(source for name, source in files_of(text).items() if name in line.split())
            # (nginx names the port of the application behind it too, first: its own is the last one. A worker of tasks
            # names the broker's.)
            for port in [port for port in ports.values() if port in told][-1:]:
                server.listens(int(port))
    return {line: rings(report) for line, report in reports.items()}


def rings(reports: Path) -> int:
    events = [event for path in reports.glob("*.jsonl") for event in path.read_text().splitlines()]
    return sum(json.loads(event).get("path") == "ring" for event in events)


def clients_moved(text: str, tmp_path: Path) -> bool:
    """Plays a recipe. True if a connection moved in each of its lines that is not a server's."""
    moved = play(text, tmp_path)
    return all(ends for line, ends in moved.items() if "fastsock run" in line and not line.endswith("&"))


@pytest.mark.parametrize("name", RUN)
def test_recipe(name, tmp_path):
    missing = [it for it in re.findall(rf"fastsock run ({'|'.join(PROGRAMS)}) ", RUN[name]) if not found(it)]
    if missing:
        pytest.skip(f"not installed: {missing}")
    # On a busy machine a recipe may be over before its connections have moved.
    assert any(clients_moved(RUN[name], tmp_path) for _ in range(3))


def test_every_recipe_has_its_figures():
    assert {name for name, text in RECIPES.items() if "<!-- figures: recipe " not in text} == {
        "systemd socket units",  # any server's
        "Containers",  # the same connections as on the host
    }


def test_the_front_page_shows_commands_of_recipes():
    lines = re.findall(r"^    (fastsock run redis.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert lines
    assert all(line in RECIPES["redis"] for line in lines)


def test_the_programs_of_the_tutorial(tmp_path):
    text = "\n".join(recipes("tutorial.md").values())
    steps = "```sh\nfastsock run server.py &\nfastsock run client.py\n```\n"
    fenced = "\n".join(f'```python title="{name}"\n{source}```' for name, source in files_of(text).items())
    assert any(sum(play(f"{fenced}\n{steps}", tmp_path).values()) == 2 for _ in range(3))  # (as above)


REASONS = set(re.findall(r'"(peer [^"]+)"', RECIPES["Containers"].partition("The reason is then")[2]))


@pytest.mark.parametrize(
    ("client", "address", "expected"),
    [(0, "127.0.0.1", {"ring"}), (0, "10.77.0.1", {"ring"}), (1, "10.77.0.1", REASONS)],
    ids=["one pod", "one pod, its address", "a bridge"],
)
def test_containers(client, address, expected, tmp_path):
    """Those that share a network namespace move, those on a bridge do not, for a reason that the recipe names. A
    container has for itself beside the network: mounts, process ids, names."""
    assert len(REASONS) == 2
    alone = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    for name, source in (("server.py", SERVER), ("client.py", CLIENT)):
        (tmp_path / name).write_text(f"HOST, PORT, EXPECTED = {address!r}, 8000, {expected}\n{source}")
    with two_hosts() as hosts:

        def inside(host: int, program: str) -> list[str]:
            return ["ip", "netns", "exec", hosts[host][0], *alone, *command(FASTSOCK, program)]

        with Server(inside(0, "server.py"), tmp_path) as server:
            server.said("listening")
            done = ended(inside(client, "client.py"), cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout in {f"path {word}\n" for word in expected}
