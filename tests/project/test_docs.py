"""What the documents say about the tests."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
COMPATIBILITY = TESTS.parent / "docs/compatibility.md"


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
