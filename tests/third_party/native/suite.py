"""What every suite needs: Debian's sources, and a way to run their programs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
Outcomes = dict[str, str]


class CannotRun(Exception):
    """Something that is needed is missing."""


def call(words: list[str], folder: Path, seconds: float = 600) -> None:
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise CannotRun(f"{' '.join(words[:6])} failed: {done.stdout[-1500:]}")


def fetch(name: str, cache: Path) -> Path:
    """The unpacked source package. The system's source lists are used with the sources of what they have."""
    if found := sorted(path for path in cache.glob(f"{name}-*") if path.is_dir()):
        return found[0]
    for tool in ("apt-get", "dpkg-source"):
        if not shutil.which(tool):
            raise CannotRun(f"there is no {tool}")
    lists, parts = cache / "lists", cache / "sources.list.d"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    parts.mkdir(exist_ok=True)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        (parts / path.name).write_text(re.sub(r"(?m)^Types:.*", "Types: deb-src", path.read_text()))
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]:
        if path.exists():
            (parts / path.name).with_suffix(".list").write_text(re.sub(r"(?m)^deb\s", "deb-src ", path.read_text()))
    options = [f"Dir::Etc::sourcelist={os.devnull}", f"Dir::Etc::sourceparts={parts}", f"Dir::State::lists={lists}"]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    call([*apt, "update"], cache)
    records = subprocess.run(
        ["apt-cache", *apt[2:], "showsrc", name], cwd=cache, capture_output=True, text=True, timeout=100, check=False
    )
    versions = dict.fromkeys(re.findall(r"(?m)^Version: (.+)", records.stdout))
    for version in reversed(versions):  # a list may name a version that its server has no more
        with contextlib.suppress(CannotRun):
            call([*apt, "source", f"{name}={version}"], cache)
            return fetch(name, cache)
    call([*apt, "source", name], cache)
    return fetch(name, cache)


# ---- a suite -------------------------------------------------------------------------------------------------------


class Suite:
    """A test program: `tests` names its tests; `run` has some of them run, as `command` begins."""

    source = ""
    at_once = False
    """All tests are run by one command."""

    def __init__(self, cache: Path) -> None:
        self.folder = fetch(self.source, cache)
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def tests(self) -> list[str]:
        raise NotImplementedError

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        raise NotImplementedError

    def said(
        self, words: list[str], variables: dict[str, str], seconds: float, folder: Path | None = None
    ) -> tuple[str, int]:
        """What a command prints, and its status; -9 if it takes too long."""
        process = subprocess.Popen(
            words,
            cwd=folder or self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output = process.communicate()[0]
            return output, -9
        return output, process.returncode
