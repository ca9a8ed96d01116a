"""What the documents say about the tests, the settings and the events."""

import ast
import logging
import re
from pathlib import Path

from fastsock import config, path_events

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
COMPATIBILITY = ROOT / "docs/compatibility.md"


def defined_in(path: Path) -> set[str]:
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)}


def test_every_line_on_compatibility_names_tests_that_exist():
    lines = [line for line in COMPATIBILITY.read_text().splitlines() if line.startswith("| ")]
    lines = [line for line in lines if not line.startswith(("| ---", "| what "))]
    assert len(lines) > 20
    for line in lines:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", line.rsplit(" | ", 1)[1])
        assert named, line
        missing = [f"{file}::{test}" for file, test in named if test not in defined_in(TESTS / file)]
        assert missing == [], line


def rows(page: str) -> list[list[str]]:
    """The cells of each line of a table on a page."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_every_setting_has_its_line():
    shown = {cells[0].strip("`"): cells[1].strip("`") for cells in rows("settings.md") if cells[0].startswith("`")}
    assert shown == {name: f"FASTSOCK_{name.upper()}" for name in config.origins()}


def test_every_event_has_its_line_and_its_level():
    source = "\n".join(path.read_text() for path in (ROOT / "fastsock").rglob("*.py"))
    told = {name: level for level, name in re.findall(r'\bevent\((\w+), "(fastsock\.\w+)"', source)}
    said = "\n".join(path.read_text() for path in (ROOT / "interpose").glob("*.c"))
    levels = {name: logging.getLevelName(level) for name, level in path_events.LEVELS.items()}
    told |= {name: levels.get(name, "WARNING") for name in re.findall(r'report\w*\(s, "(fastsock\.\w+)"', said)}
    assert len(told) > 8
    shown = {cells[0].strip("`"): cells[1].partition(",")[0] for cells in rows("reasons.md") if len(cells) == 3}
    assert {name: level for name, level in shown.items() if name.startswith("fastsock.")} == told
