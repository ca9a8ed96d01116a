"""`./dev bench figures`: what a session writes. Not how fast anything is."""

from __future__ import annotations

import json
import sys

import pytest
from harness.processes import ended

from project.test_figures import ROOT, words

SECONDS = 100
ROW, WORK = "sessions-http.server-4", "pingpong-4"

pytestmark = pytest.mark.timeout(SECONDS + 20)


def figures(*options: object) -> str:
    return ended([sys.executable, "-m", "bench.figures", *options]).stderr


def test_a_session_writes_the_figures(tmp_path):
    documents = {path: path.read_bytes() for path in (ROOT / "docs").glob("*.md")}
    file = tmp_path / "figures.json"
    figures("--quick", "--file", file, ROW, WORK, "pictures")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json"]
    document = json.loads(file.read_text())
    (session,) = document["sessions"].values()
    assert "a trial run" in words.taken(session)
    assert set(document["programs"][ROW]) == {"free", "apart"}
    assert document["loops"][WORK]["ratio"]["median"] > 0
    assert document["curves"]["panels"].keys() == {"latency", "bandwidth"}
    figures("--quick", "--file", file, WORK)  # the others stay, with their session
    renewed = json.loads(file.read_text())
    assert len(renewed["sessions"]) == 2
    assert renewed["programs"] == document["programs"]
    assert {path: path.read_bytes() for path in documents} == documents  # of another file than the documents'


def test_what_cannot_be_measured_is_told_by_name():
    said = ended([sys.executable, "-m", "bench.figures", "no-such-row"], 2).stderr
    assert "nothing to measure is called no-such-row" in said
