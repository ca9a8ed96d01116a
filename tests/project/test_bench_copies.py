"""`python -m bench.copies` times copies of either kind. Not how fast they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"\s*[\d,]+\.\d "


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.copies", *words],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.timeout(120)
def test_a_row_for_each_length() -> None:
    done = run("160", "2112")
    assert done.returncode == 0, done.stderr
    tables = 2 if len(os.sched_getaffinity(0)) > 1 else 1
    for length in ("160", "2,112"):
        assert len(re.findall(rf"^│\s+{length} │{NUMBER}│{NUMBER}│", done.stdout, re.MULTILINE)) >= tables


@pytest.mark.parametrize("length", ["0", "159", "1048577", "many"])
def test_no_such_length(length: str) -> None:
    done = run(length)
    assert (done.returncode, done.stdout) == (2, "")
    assert length in done.stderr.replace(",", "")
