"""`./dev bench pictures`: the pictures show the figures of the JSON file next to them. Not how fast anything is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import ended

SECONDS = 100
TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")

pytestmark = pytest.mark.timeout(SECONDS + 20)


def pictures(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return ended([sys.executable, "-m", "bench.pictures", "--directory", directory, *words], None)


def test_a_session_writes_the_figures_and_the_pictures_and_they_can_be_drawn_again(tmp_path):
    ended = pictures(tmp_path, "--quick")
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.json", "latency.svg", "throughput.svg"]
    document = json.loads((tmp_path / "curves.json").read_text())
    for panel in ("latency", "bandwidth"):
        assert set(document["curves"][panel]) == {"fastsock ring", "kernel TCP", "unix socket"}
        for by_size in document["curves"][panel].values():
            assert len(by_size) == 10
            assert all(figure > 0 for figures in by_size.values() for figure in figures)
    drawn = {path: path.read_bytes() for path in tmp_path.glob("*.svg")}
    for picture in drawn:
        texts = " ".join(TEXT.findall(picture.read_text()))
        assert document["machine"]["kernel"] in texts
        assert "fastsock ring" in texts
        picture.unlink()
    assert pictures(tmp_path, "--redraw").returncode == 0
    assert {path: path.read_bytes() for path in drawn} == drawn


@pytest.mark.parametrize("content", [None, "no JSON", '{"curves": {}}'])
def test_figures_that_cannot_be_read_are_told(tmp_path, content):
    if content is not None:
        (tmp_path / "curves.json").write_text(content)
    ended = pictures(tmp_path, "--redraw")
    assert ended.returncode == 1
    assert "curves.json" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.glob("*.svg")) == []
