"""Each place of the core that asks the system, or allocates, is made to fail once (tests/native/sweep.h)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE, NATIVE = ROOT / "core", ROOT / "tests" / "native"
PROGRAMS = ["failures", "search", "waiting", "others", "polling", "messages"]
COMPILER = shlex.split(os.environ.get("CC", "gcc"))
CALL = re.compile(r"\bfs_system\.(?!free\b)([a-z_0-9]+)\b(?! = )")  # (not where the calls are set)
Place = tuple[str, int, str]  # file, line, call

# A call of which nobody reads whether it failed is a statement of its own, and one of these.
UNREAD = re.compile(r"^(\}? ?else )?(if \(.*\) )?fs_system\.(close|munmap|munlock|shutdown|lseek|nanosleep)\([^;=]*\);")


def places(core: Path) -> dict[Place, str]:
    """Where the core asks the system, and the line."""
    found = {}
    for path in sorted([*core.rglob("*.c"), *core.rglob("*.h")]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r"/\*.*?(\*/|$)|^ \*.*", "", line)
            for call in CALL.findall(code):
                found[str(path.relative_to(core)), number, call] = line.strip()
    return found


def fates(output: str, core: Path) -> dict[Place, str]:
    """What a program says of its places."""
    found: dict[Place, str] = {}
    for line in output.splitlines():
        if line.startswith("site "):
            _, name, number, call, fate = line.split()
            path = Path(name)
            place = (str(path.relative_to(core) if path.is_absolute() else path), int(number), call)
            if found.get(place) not in ("failed", "spared") or fate == "failed":
                found[place] = fate
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The core whose places note themselves, and the folder of the programs on it."""
    folder = tmp_path_factory.mktemp("sites")
    core = folder / "core"
    shutil.copytree(CORE, core)
    for path in [*core.rglob("*.c"), *core.rglob("*.h")]:
        path.write_text(CALL.sub(r"FS_AT(\1)", path.read_text()))
    note = ["-include", str(NATIVE / "sites.h")]
    subprocess.run(
        [str(core / "compile"), str(folder / "built"), "-O1", "-U_FORTIFY_SOURCE", *note],
        env={**os.environ, "FASTSOCK_DEBUG": "1"},
        check=True,
        timeout=120,
    )
    for name in PROGRAMS:
        flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", *note, f"-I{core}", f"-I{core / 'include'}"]
        library = str(folder / "built" / "libfastsock.a")
        command = [*COMPILER, *flags, str(NATIVE / f"{name}.c"), library, "-pthread", "-o", str(folder / name)]
        subprocess.run(command, check=True, timeout=60)
    return core, folder


def test_each_place_fails_once(built: tuple[Path, Path]) -> None:
    core, folder = built

    def run(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(folder / name)], check=False, capture_output=True, text=True, timeout=280)

    told: dict[Place, str] = {}
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        for done in pool.map(run, PROGRAMS):
            assert done.returncode == 0, done.stderr
            for place, fate in fates(done.stdout, core).items():
                if told.get(place) not in ("failed", "spared") or fate == "failed":
                    told[place] = fate
    source = places(CORE)
    assert {place for place in told if place not in source} == set()
    left = [
        f"{place[0]}:{place[1]} {line}"
        for place, line in source.items()
        if told.get(place) not in ("failed", "spared") and not UNREAD.match(line)
    ]
    assert not left, "no run makes these fail:\n" + "\n".join(left)
    assert sum(fate == "failed" for fate in told.values()) > len(source) / 2
