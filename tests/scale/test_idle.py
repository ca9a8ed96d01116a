"""`python -m bench.idle` measures what fastsock costs a program that does something else. Not how much that is."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from bench.idle import ROWS, STATES, rows  # noqa: E402


def test_each_row_is_measured_in_each_state() -> None:
    command = [sys.executable, "-m", "bench.idle", "--rounds", "1", "--repeats", "4", "--limit", "1024"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    tables = done.stdout.strip().split("\n\n")
    assert [table.splitlines()[0] for table in tables] == [
        f"{state}, limit of 1024 descriptors, 1 rounds" for state in STATES
    ]
    for table in tables:
        lines = table.splitlines()[2:]
        assert [line.startswith(name) for line, name in zip(lines, ROWS, strict=True)] == [True] * len(ROWS)
        assert all(line.endswith("side") for line in lines)


def test_a_row_is_outside_if_patched_is_worse_than_the_null_test() -> None:
    def triple(patched: float, again: float) -> tuple[dict[str, float], ...]:
        return tuple(dict.fromkeys(ROWS, figure) for figure in (100.0, patched, again))

    assert [inside for *_, inside in rows([triple(104, 100)] * 3)] == [True] * len(ROWS)
    assert [inside for *_, inside in rows([triple(110, 100)] * 3)] == [False] * len(ROWS)
    assert [inside for *_, inside in rows([triple(110, 112)] * 3)] == [True] * len(ROWS)
