"""Every recipe of the documents, run as it stands there, and its claim about what moves."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from processes import port_for_later

ROOT = Path(__file__).parent.parent
DEADLINE = 40
MOVES, STAYS = "**moves**", "**stays on kernel TCP**"


def recipes(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


RECIPES = recipes("recipes.md")
RUN = {name: text for name, text in RECIPES.items() if "```sh" in text}


def test_only_the_containers_are_not_run_here():
    """But in test_containers.py."""
    assert set(RECIPES) - set(RUN) == {"Containers"}
    for name, text in RUN.items():
        assert (MOVES in text) != (STAYS in text), name


def free_ports(text: str) -> tuple[str, list[str]]:
    """The text with a free port in place of each that it names, and those ports."""
    ports = []
    for port in sorted(set(re.findall(r"\b8\d{3}\b", text))):
        ports.append(str(port_for_later()))
        text = re.sub(rf"\b{port}\b", ports[-1], text)
    return text, ports


def files_of(text: str) -> dict[str, str]:
    return dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```', text, re.MULTILINE | re.DOTALL))


def commands_of(text: str) -> list[str]:
    (block,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return block.splitlines()


def started(command: str, folder: Path, reports: Path) -> subprocess.Popen:
    """Starts a command line of a recipe, with this interpreter and this fastsock."""
    words = shlex.split(command.removesuffix("&"))
    settings = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    program = {"fastsock": [sys.executable, "-m", "fastsock"], "python": [sys.executable]}[words[0]]
    environment = {**os.environ, **settings, "FASTSOCK_RUN_REPORT": str(reports)}
    command_line = [*program, *words[1:]]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command_line, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)


def await_port(port: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    pytest.fail(f"nobody listens on {port}")


def moved(reports: Path) -> int:
    """Ends of connections that took the ring."""
    lines = [line for path in reports.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sum(json.loads(line).get("path") == "ring" for line in lines)


def play(text: str, tmp_path: Path) -> int:
    """Runs a recipe: how many ends of connections moved."""
    text, ports = free_ports(text)
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    reports = tmp_path / "reports"
    reports.mkdir()
    for name, source in files_of(text).items():
        (tmp_path / name).write_text(source)
    with contextlib.ExitStack() as ended:
        for command in commands_of(text):
            process = started(command, tmp_path, reports)
            ended.callback(end, process)
            if command.endswith("&"):
                told = command + "".join(source for name, source in files_of(text).items() if name in command.split())
                # (The gateway names the port of the application behind it too, first: its own is the last one.)
                await_port(int([port for port in ports if port in told][-1]), process)
            else:
                assert process.wait(DEADLINE) == 0, process.communicate()[1]
    return moved(reports)


def end(process: subprocess.Popen) -> None:
    """With the processes that it has started: they are one process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=DEADLINE)


@pytest.mark.parametrize("name", RUN)
def test_recipe(name, tmp_path):
    ends = play(RUN[name], tmp_path)
    for _ in range(2):  # on a busy machine a recipe may be over before its connections have moved
        if MOVES in RUN[name] and not ends:
            ends = play(RUN[name], tmp_path)
    assert (ends > 0) == (MOVES in RUN[name])


def test_the_programs_of_the_tutorial(tmp_path):
    text = "\n".join(recipes("tutorial.md").values())
    steps = "```sh\nfastsock run server.py &\nfastsock run client.py\n```\n"
    fenced = "\n".join(f'```python title="{name}"\n{source}```' for name, source in files_of(text).items())
    assert any(play(f"{fenced}\n{steps}", tmp_path) == 2 for _ in range(3))  # (as above)
