"""`fastsock export`: what is in the folder works where there is no Python, and in another root file system."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import ROOT, ended

from fastsock import launch
from fastsock.tools import export

COMPILER = os.environ.get("CC", "cc")
CASES = sorted((ROOT / "tests/interpose").glob("*.c"))
OF_MUSL = [ROOT / "tests/interpose/musl/glibc_only.c", "-idirafter", "/usr/include"]
OF_MUSL += ["-idirafter", f"/usr/include/{os.uname().machine}-linux-gnu"]  # the kernel's headers
HAS_MUSL = shutil.which("musl-gcc") is not None and os.path.exists(export.MUSL)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with the exported folder, and no Python."""
    root = tmp_path / "root"
    for name in ("fastsock", "tmp", "proc", "dev", "etc"):
        (root / name).mkdir(parents=True)
    done = ended([sys.executable, "-m", "fastsock", "export", root / "fastsock"])
    files = {path.name for path in (root / "fastsock").iterdir()}
    assert done.stdout == f"{root}/fastsock: {', '.join(name for name in (*export.FILES, 'README') if name in files)}\n"
    assert files >= {"libfastsock.so", "fastsock-run", "README"}
    assert "fastsock-run" in (root / "fastsock/README").read_text()
    return root


def with_libraries(root: Path, program: Path) -> None:
    """Copies a program, and what it needs of the C library."""
    shutil.copy(program, root / program.name)
    told = [
        subprocess.run(["ldd", file], capture_output=True, text=True, timeout=60, check=False).stdout
        for file in (root / "fastsock/fastsock-run", program)
    ]
    words = {word for text in told for word in text.split() if word.startswith("/")}
    for path in filter(os.path.exists, {*words, *glob.glob("/lib/ld-musl-*.so.1")}):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), root / path[1:])


def test_a_folder_that_is_exported_again_keeps_what_programs_have_loaded(tmp_path: Path) -> None:
    export.export(str(tmp_path))
    before = (tmp_path / "libfastsock.so").open("rb")
    assert export.export(str(tmp_path)) == sorted(os.listdir(tmp_path), key=[*export.FILES, "README"].index)
    with before:
        assert before.read() == (tmp_path / "libfastsock.so").read_bytes() == Path(launch.LIBRARY).read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root directory")
@pytest.mark.parametrize(
    "libc", ["glibc", pytest.param("musl", marks=pytest.mark.skipif(not HAS_MUSL, reason="no musl-gcc"))]
)
def test_a_program_in_another_root_is_served(libc: str, root: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    compiler, more = (COMPILER, []) if libc == "glibc" else ("musl-gcc", OF_MUSL)
    words = [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-w", *CASES, *more, "-pthread", "-ldl", "-o", program]
    subprocess.run(words, check=True, timeout=110)
    with_libraries(root, program)
    expected = ended([program, "polls"]).stdout
    for rounds in ("60", "500", "4000"):  # on a busy machine it takes longer until both ends have moved
        run = ["chroot", root, "/fastsock/fastsock-run", "--stats", "/tmp/stats", "--trust", "any", "/program", "polls"]
        done = ended(run, CONFORMANCE_ROUNDS=rounds)
        assert (done.stdout, done.stderr) == (expected, "")
        if json.loads((root / "tmp/stats").read_text())["connections_ring"] == 2:
            return
    pytest.fail("it stays with the kernel")
