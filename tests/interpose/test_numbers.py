"""The numbers of a program's descriptors are those that it would have on kernel TCP."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from harness.processes import ROOT, ended

from fastsock import launch

CONNECTIONS = 40


def test_each_number_is_the_lowest_that_is_free(tmp_path: Path) -> None:
    program, stats = tmp_path / "lowest", tmp_path / "stats.json"
    words = [os.environ.get("CC", "cc"), ROOT / "tests/interpose/programs/lowest.c", "-o", program]
    subprocess.run(words, check=True, timeout=60)
    served = f'FASTSOCK_MOVE_AFTER=0 FASTSOCK_RUN_LIBRARY_STATS=$$:{stats} LD_PRELOAD={launch.LIBRARY} exec "$@"'
    done = ended(["sh", "-c", served, "sh", program, CONNECTIONS])
    assert done.stdout == "done, 0 of 1000 numbers were not the lowest\n"
    assert json.loads(stats.read_text())["connections_ring"] > CONNECTIONS / 2
