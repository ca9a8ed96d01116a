"""`python -m bench.instructions` counts what a message costs. Not how much that is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from harness.processes import ended

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # bench is no installed package

from bench.instructions import FIGURES, per_message  # noqa: E402


def test_without_valgrind_it_says_so(tmp_path: Path) -> None:
    done = ended([sys.executable, "-m", "bench.instructions"], 1, PATH=str(tmp_path))
    assert done.stderr == "valgrind is not installed\n"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.timeout(600)
def test_a_message_costs_instructions() -> None:
    figures = per_message("echo", 16, 416)
    assert figures.keys() == FIGURES.keys()
    assert figures["instructions"] > 100
