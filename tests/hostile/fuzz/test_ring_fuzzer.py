"""The fuzzer of the ring finds faults: with each seeded into a copy of the core, a run ends in it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from harness.processes import ended

HERE = Path(__file__).parent
CORE = HERE.parents[2] / "core"
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

FAULTS = {
    "no fault": None,
    "offset not checked": ("offset <= ring->rx_span && view->length <= ring->rx_span - offset", "1"),
    "length read twice": (
        "    return 1;\n}\n\n/* Returns true if a desc",
        "    view->length = FS_COMMIT_LEN(fs_load_acquire(&d->commit));\n    return 1;\n}\n\n/* Returns true if a desc",
    ),
    "ACK not checked": ("if (fresh > in_flight) {", "if (0) {"),
    "peeks beyond the room": ("if (part > room - got) part = room - got;", ""),
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number, line in enumerate((HERE / "corpus" / "ring.hex").read_text().split()):
        (folder / str(number)).write_bytes(bytes.fromhex(line))
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found(fault: str, corpus: Path, tmp_path: Path) -> None:
    core = tmp_path / "core"
    shutil.copytree(CORE, core)
    seeded = FAULTS[fault]
    if seeded:
        [header] = [path for path in core.rglob("*.h") if seeded[0] in path.read_text()]
        text = header.read_text()
        assert text.count(seeded[0]) == 1
        header.write_text(text.replace(*seeded))
    binary = tmp_path / "ring"
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    sources = [
        str(HERE / "ring.c"),
        str(HERE / "driver.c"),
        str(core / "ring/robust_lock.c"),
        *map(str, sorted((core / "os").glob("*.c"))),
    ]
    subprocess.run([*compiler, *FLAGS, f"-I{core}", *sources, "-o", str(binary)], check=True, timeout=50)
    options = ["-seed=1", f"-max_total_time={10 if seeded else 1}", f"-artifact_prefix={tmp_path}/"]
    done = ended([binary, *options, corpus], None, ASAN_OPTIONS="detect_leaks=0")
    assert bool(done.returncode) == bool(seeded), done.stdout + done.stderr
    assert bool(list(tmp_path.glob("crash-*"))) == bool(seeded)
