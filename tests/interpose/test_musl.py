"""The cases of this folder, compiled for musl, below the library for musl: calls do what they do on kernel TCP."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from harness.processes import ROOT, MadeOnce, ended

from fastsock import launch
from fastsock.tools import export
from interpose.test_interpose import CASES, SOURCES

FOLDER = ROOT / "tests/interpose/musl"
HEADERS = ["/usr/include", f"/usr/include/{os.uname().machine}-linux-gnu"]  # the kernel's, of which musl has none
COMPILER = ["musl-gcc", "-w", *(word for folder in HEADERS for word in ("-idirafter", folder))]
LIBRARY = Path(export.MUSL) / "libfastsock-musl.so"
WITH_MUSL = shutil.which("musl-gcc") is not None and LIBRARY.exists()
pytestmark = pytest.mark.skipif(not WITH_MUSL, reason="no musl-gcc here when fastsock was built")


@pytest.fixture(scope="module")
def program(made_once: MadeOnce) -> Path:
    def make(folder: Path) -> None:
        own = ["-O1", "-D_GNU_SOURCE", "-include", FOLDER / "glibc_only.h", FOLDER / "glibc_only.c"]
        ended([*COMPILER, *own, *SOURCES, "-pthread", "-ldl", "-o", folder / "conformance"])
        for plugin in ("plugin.so", "deep.so"):
            source = ROOT / "tests/interpose/relocated/ways_plugin.c"
            ended([*COMPILER, "-shared", "-fPIC", source, "-o", folder / plugin])

    return made_once("musl", make) / "conformance"


UNFIT = {
    "last_words": "it has a plugin of its own",
    "refusals": "musl's dup3 takes flags that the kernel refuses, and the library's refuses them",
}


@pytest.mark.parametrize("case", [case for case in CASES if case not in UNFIT])
def test_calls_of_a_program_of_musl_do_what_they_do_on_kernel_tcp(case: str, program: Path, tmp_path: Path) -> None:
    expected, stats = ended([program, case]).stdout, tmp_path / "stats.json"
    start = f'FASTSOCK_RUN_LIBRARY_STATS=$$:{stats} LD_PRELOAD={LIBRARY} exec "$@"'
    for rounds in ("60", "500", "4000"):  # on a busy machine it takes longer until both ends have moved
        done = ended(["sh", "-c", start, "sh", program, case], CONFORMANCE_ROUNDS=rounds)
        assert done.stdout == expected
        if json.loads(stats.read_text())["connections_ring"] >= 2:
            return
    pytest.fail("it stays with the kernel")


def test_the_library_for_musl_leaves_a_program_of_glibc_untouched() -> None:
    done = ended(["env", "true"], LD_PRELOAD=str(LIBRARY))
    assert (done.stdout, done.stderr.count("cannot be preloaded")) == ("", 2)


@pytest.mark.parametrize("case", [case for case in CASES if case not in UNFIT][::6])
def test_the_library_for_glibc_leaves_a_program_of_musl_untouched(case: str, program: Path) -> None:
    """The loader of musl takes it, so its functions stand before those of musl."""
    expected = ended([program, case]).stdout
    start = f'LD_PRELOAD={launch.LIBRARY} exec "$@"'
    done = ended(["sh", "-c", start, "sh", program, case])
    said = f"fastsock: {program} stays with the kernel: its C library is not glibc, for which this library is\n"
    assert (done.stdout, done.stderr) == (expected, said)


def test_the_launcher_says_that_a_program_needs_the_other_library(program: Path, tmp_path: Path) -> None:
    for name in ("fastsock-run", "libfastsock.so"):
        shutil.copy(Path(launch.LIBRARY).with_name(name), tmp_path)
    done = ended([tmp_path / "fastsock-run", program, "data"])
    said = f"fastsock: {program} stays with the kernel: its C library is musl; glibc is needed\n"
    assert (done.stdout, done.stderr) == (ended([program, "data"]).stdout, said)
