"""`python -m bench.instructions` counts what a message costs. Not how much that is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # bench is no installed package

from bench.instructions import FIGURES, per_message  # noqa: E402


def test_without_valgrind_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.instructions"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "valgrind is not installed\n")


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.timeout(600)
def test_a_message_costs_instructions() -> None:
    figures = per_message("echo", 16, 416)
    assert figures.keys() == FIGURES.keys()
    assert figures["instructions"] > 100
