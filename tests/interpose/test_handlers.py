"""What calls in signal handlers may take: little of the stack, and nothing of malloc."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.processes import ROOT, MadeOnce, ended

from interpose.test_interpose import COMPILER, under_library

SOURCE = ROOT / "tests" / "interpose" / "handlers" / "handlers.c"


@pytest.fixture(scope="module")
def program(made_once: MadeOnce) -> Path:
    """Its functions are bound when it starts: the loader's binding takes 3 KiB of the stack."""
    flags = ["-O1", "-Wall", "-Wl,-z,now", "-pthread"]
    return made_once("handlers", lambda into: ended([COMPILER, *flags, SOURCE, "-o", into / "handlers"])) / "handlers"


@pytest.mark.parametrize("operations", ["0", "10", "500"])
@pytest.mark.parametrize("move_after", ["0", "100"])
def test_calls_in_handlers_take_little_stack_and_no_malloc(
    program: Path, tmp_path: Path, operations: str, move_after: str
) -> None:
    expected = ended([program, operations]).stdout
    assert "write: little stack\n" in expected
    assert expected.endswith("calls of malloc and free: 0\n")
    got, stats = under_library([program, operations], tmp_path / "stats.json", FASTSOCK_MOVE_AFTER=move_after)
    assert got == expected
    assert operations != "500" or stats["connections_ring"] == 2
