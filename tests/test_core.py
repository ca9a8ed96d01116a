"""The core is a library for C: built with a compiler alone, of headers that stand alone, and driven without Python."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core"
NATIVE = ROOT / "tests" / "native"
COMPILER = shlex.split(os.environ.get("CC", "cc"))
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", f"-I{CORE}"]
DEADLINE = 110

pytestmark = pytest.mark.timeout(120)  # some thirty files are compiled


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    command = [CORE / "compile", folder, "-O1", "-U_FORTIFY_SOURCE", "-Werror"]
    asserts = {**os.environ, "FASTSOCK_DEBUG": "1"}
    done = subprocess.run(command, env=asserts, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "libfastsock.a"


def test_each_header_stands_alone() -> None:
    """So that an include says what a file needs, and their order says nothing."""
    for header in sorted(CORE.rglob("*.h")):
        line = f'#include "{header.relative_to(CORE)}"\n'
        done = subprocess.run(
            [*COMPILER, *FLAGS, "-fsyntax-only", "-xc", "-"],
            input=line, capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), header


def test_the_library_needs_the_c_library_alone(library: Path, tmp_path: Path) -> None:
    """All of it is linked into a program that calls nothing."""
    whole = ["-Wl,--whole-archive", str(library), "-Wl,--no-whole-archive", "-pthread"]
    done = subprocess.run(
        [*COMPILER, "-xc", "-", "-xnone", *whole, "-o", str(tmp_path / "program")],
        input="int main(void) { return 0; }", capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "program"], timeout=DEADLINE, check=False).returncode == 0


def test_a_program_in_c_drives_connections(library: Path, tmp_path: Path) -> None:
    source = ROOT / "tests/native/front.c"
    includes = [f"-I{CORE}/include", f"-I{CORE}"]
    program = tmp_path / "front"
    subprocess.run(
        [*COMPILER, *FLAGS, "-O1", "-g", *includes, str(source), str(library), "-pthread", "-o", str(program)],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    done = subprocess.run([program, "1"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"[1-9]\d* rounds: [1-9]\d* bytes on the ring", done.stdout)


@pytest.mark.parametrize("name", ["connection", "failures"])
def test_what_each_call_of_the_core_does(name: str, library: Path, tmp_path: Path) -> None:
    """Connections whose ends move, leave, fork, close and die under load; and calls of the system that fail."""
    wraps = subprocess.run([NATIVE / "wraps", name], capture_output=True, text=True, check=True, timeout=DEADLINE)
    program = tmp_path / name
    subprocess.run(
        [*COMPILER, *FLAGS, "-O1", "-g", "-U_FORTIFY_SOURCE", str(NATIVE / f"{name}.c"), str(library), "-pthread",
         *wraps.stdout.split(), "-o", str(program)],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    done = subprocess.run([program, "3"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* (rounds|runs), [1-9]\d* (bytes|failures)", done.stdout, re.MULTILINE)
