"""A program that starts others, each with an end of a pair as standard streams: a pair goes back to the kernel then, so
it was shared in vain. After two of them the next ones stay with the kernel, but for one in sixteen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, ROOT, answer_of

STARTS = ROOT / "tests/interpose/started_programs.py"
NODE = shutil.which("node")


def test_pairs_stay_with_the_kernel_after_two_in_vain() -> None:
    [moved] = answer_of(FASTSOCK, STARTS, "starts_a_program:20")
    assert moved == [2, *[4] * 16, *[6] * 3], "each is of two ends; the one that was shared to see was in vain, too"


def test_a_pair_of_use_ends_that() -> None:
    before, of_use, after = answer_of(FASTSOCK, STARTS, "starts_a_program:2", "has_a_child:17", "starts_a_program:3")
    assert before == [2, 4]
    assert of_use == [*[4] * 15, 6, 8]
    assert after == [10, 12, 12]


def test_pairs_of_use_are_all_shared() -> None:
    [moved] = answer_of(FASTSOCK, STARTS, "has_a_child:4")
    assert moved == [2, 4, 6, 8]


def test_without_move_after_all_are_shared() -> None:
    [moved] = answer_of(FASTSOCK, STARTS, "starts_a_program:4", FASTSOCK_MOVE_AFTER="0")
    assert moved == [2, 4, 6, 8]


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_node(tmp_path: Path) -> None:
    """Its first fork shares the three of its program."""
    stats = tmp_path / "stats.json"
    assert answer_of(FASTSOCK, NODE, STARTS.with_suffix(".js"), 5, stats=stats) == ["hello"] * 5
    assert json.loads(stats.read_text())["connections_ring"] == 6
