"""`./dev` on a machine that cannot build: one line for each thing that is missing, and nothing begun.

And what `./dev commands` tells editors.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
from harness.processes import ended

DEV = Path(__file__).parents[2] / "dev"
NO_HEADERS = "import sysconfig; sysconfig.get_path = lambda name: '/nonexistent'"
NO_ENSUREPIP = "import importlib.util; importlib.util.find_spec = lambda name: None"


@pytest.mark.parametrize(
    ("compiler", "site", "missing"),
    [
        ("/nonexistent/cc -O2", "", ["a C compiler (/nonexistent/cc)"]),
        ("cat", NO_HEADERS, ["Python's headers"]),
        ("cat", NO_ENSUREPIP, ["virtual environments"]),
        ("/nonexistent/cc", f"{NO_HEADERS}\n{NO_ENSUREPIP}", ["a C compiler", "Python's headers", "virtual"]),
    ],
    ids=["compiler", "headers", "ensurepip", "all"],
)
def test_what_a_build_needs_and_is_not_there_is_told_before_anything_is_made(tmp_path, compiler, site, missing):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(DEV, checkout)
    (tmp_path / "sitecustomize.py").write_text(site)
    settings = {"CC": compiler, "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path), "VENV": ".venv"}
    command = [checkout / "dev", "demo"]
    done = ended(command, 1, **settings)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == len(missing)
    for line, part in zip(lines, missing, strict=True):
        assert line.startswith(f"dev: missing: {part}")
        assert "apt-get install" in line
    assert [path.name for path in checkout.iterdir()] == ["dev"]


def test_editors_are_told_how_each_file_of_c_is_compiled(tmp_path):
    shutil.copy(DEV, tmp_path)
    (tmp_path / "tests").mkdir()
    for room in ("core", "interpose", "tests/native"):
        (tmp_path / room).symlink_to(DEV.parent / room)
    ended([tmp_path / "dev", "commands"], PYTHON=sys.executable)
    entries = {entry["file"]: entry for entry in json.loads((tmp_path / "compile_commands.json").read_text())}
    rooms = ("core", "interpose", "tests/native")
    assert {path.relative_to(DEV.parent).as_posix() for it in rooms for path in (DEV.parent / it).rglob("*.c")} == set(
        entries
    )
    for name in ("core/conn/send.c", "interpose/io_calls.c", "tests/native/life.c"):
        ended(["env", "-C", entries[name]["directory"], *entries[name]["arguments"], "-fsyntax-only"])
