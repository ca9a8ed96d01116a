"""The figures of the front page, the tables on performance and the recipes are those of one file,
`docs/figures.json`. Not how fast anything is."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # bench is no installed package

from bench.figures import documents, store, words  # noqa: E402
from bench.programs.rows import APART, FREE, Row, python  # noqa: E402

DOCUMENT = store.read()
TEXTS = {path.name: path.read_text() for path in documents.DOCUMENTS}
RATIO = re.compile(r"\d(?:\.\d+)?x\b|\d\.\d+ times\b|\d+ times (?:as|less|more|faster|slower)|\b\d+(?:\.\d+)? us\b")
"""What a figure looks like that somebody has typed."""


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_says_what_was_measured(name):
    assert documents.rendered(TEXTS[name], DOCUMENT) == TEXTS[name], "run ./dev bench figures --redraw"


@pytest.mark.parametrize("name", [*TEXTS, "byte.svg"])
def test_no_ratio_and_no_time_is_typed(name):
    text = TEXTS.get(name) or (ROOT / "docs" / name).read_text()
    assert RATIO.findall(documents.outside(text)) == []


def test_each_document_shows_figures():
    contents = {name: {found[1].split()[0] for found in documents.PLACE.findall(text)} for name, text in TEXTS.items()}
    assert contents["README.md"] == {"front"}
    assert contents["performance.md"] == {"sessions", "programs", "loops", "curves"}
    assert contents["recipes.md"] == {"recipe"}


def test_a_figure_that_changes_is_seen_in_every_document():
    changed = copy.deepcopy(DOCUMENT)
    for placements in changed["programs"].values():
        for one in placements.values():
            one["ratio"][1] += 7
    for name, text in TEXTS.items():
        assert documents.rendered(text, changed) != text, name


def test_each_figure_says_on_what_and_when_it_was_taken():
    for one in store.measured(DOCUMENT):
        said = words.taken(DOCUMENT["sessions"][one["session"]])
        assert re.search(r"CPUs of \S.*, a wakeup costs [\d.]+ us, 20\d\d-\d\d-\d\d", said)


def taken(ratio: float, path: str, fastsock: float = 1.0) -> dict[str, object]:
    micros = {"plain": {"server": 1.0, "client": 1.0}, "fastsock": {"server": fastsock, "client": 1.0}}
    return {"ratio": [ratio] * 3, "path": path, "cpu_us": micros}


@pytest.mark.parametrize(
    ("reason", "measured", "expected"),
    [
        ("", taken(1.2, "ring 2"), ""),
        ("it computes", taken(1.2, "ring 2"), ""),
        ("it computes", taken(0.9, "ring 2"), "it computes"),
        ("", taken(0.9, "tcp 9 (too few operations, ...)"), "stays on kernel TCP: too few operations"),
        ("", taken(1.0, "ring 2"), "the same within noise"),
        ("", taken(0.9, "-"), "stays on kernel TCP"),
        ("", taken(0.9, "ring 2"), "on the ring: not explained yet"),
        ("", taken(0.9, "ring 2", 1.5), "on the ring, with more CPU time: not explained yet"),
    ],
)
def test_a_row_that_gains_nothing_says_why(reason, measured, expected):
    row = Row("row", "row", (), python("x.py"), reason=reason)
    assert words.why(row, {FREE: taken(2.0, "ring 2"), APART: measured}) == expected


def test_every_row_of_the_table_below_one_has_a_reason():
    for line in (line for line in TEXTS["performance.md"].splitlines() if line.count("|") == 7):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ratios = [float(cell) for cell in (cells[1], cells[3]) if re.fullmatch(r"[\d.]+", cell)]
        assert not ratios or min(ratios) >= 1.0 or cells[5], line
