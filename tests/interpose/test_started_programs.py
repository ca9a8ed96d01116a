"""A program that starts others, each with an end of a pair."""

from __future__ import annotations

import json
from pathlib import Path

from harness.processes import FASTSOCK, ROOT, answer_of

PROGRAM = ROOT / "tests/interpose/started_programs.py"


def test_pairs_stay_with_the_kernel_where_to_share_them_was_in_vain(tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    on = {"FASTSOCK_UNIX_STREAMS": "1"}
    assert answer_of(FASTSOCK, PROGRAM, 8, stats=stats, **on) == ["hello"] * 8
    counts = json.loads(stats.read_text())
    assert counts["connections_ring"] <= 8  # mostly both ends of two, and not of eight
