"""The numbers of a program's descriptors are those that it would have on kernel TCP."""

from __future__ import annotations

import json
from pathlib import Path

from harness.processes import ROOT, compiled, ended

from fastsock import launch

CONNECTIONS = 40


def test_each_number_is_the_lowest_that_is_free(tmp_path: Path) -> None:
    program, stats = compiled(ROOT / "tests/interpose/programs/lowest.c", tmp_path), tmp_path / "stats.json"
    served = f'FASTSOCK_MOVE_AFTER=0 FASTSOCK_RUN_LIBRARY_STATS=$$:{stats} LD_PRELOAD={launch.LIBRARY} exec "$@"'
    done = ended(["sh", "-c", served, "sh", program, CONNECTIONS])
    assert done.stdout == "done, 0 of 1000 numbers were not the lowest\n"
    assert json.loads(stats.read_text())["connections_ring"] > CONNECTIONS / 2
