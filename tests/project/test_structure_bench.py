"""Who knows whom in bench/ and research/: no two modules need each other, and what a work measures, how a process is
driven and how results are shown are three things that know nothing of each other."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.graphs import circles, reached

ROOT = Path(__file__).parents[2]

MEASURED = {"bench.worker", "bench.warmup", "bench.data", "bench.connections", "bench.aio", "bench.http", "bench.loops"}
DRIVEN = {"bench.process"}
SHOWN = {"bench.results", "bench.report", "bench.plot"}

SCRIPTS = ROOT / "bench" / "programs" / "scripts"
"""Ordinary programs, each started by its path: they stand in no layer, since they know nothing of us."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


SOURCES = {
    module_name(path): path.read_text()
    for room in ("bench", "research")
    for path in sorted((ROOT / room).rglob("*.py"))
    if path.parent != SCRIPTS
}


# ---- drawing -------------------------------------------------------------------------------------------------


def arrows(source: str, modules: set[str]) -> set[str]:
    """The modules that a source knows: those that it imports, wherever that stands (in a function, for the type checker
    only), and those whose name it gives to somebody who starts or loads them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= inside if len(inside) == len(node.names) else {*inside, str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            found.add(node.value.partition(":")[0])
    return found & modules


def drawn(sources: Mapping[str, str]) -> dict[str, set[str]]:
    return {name: arrows(text, set(sources)) - {name} for name, text in sources.items()}


GRAPH = drawn(SOURCES)


# ---- what must hold ------------------------------------------------------------------------------------------


def test_no_modules_need_each_other() -> None:
    assert circles(GRAPH) == set()


@pytest.mark.parametrize(
    ("room", "strangers"),
    [(MEASURED, DRIVEN | SHOWN), (DRIVEN, MEASURED | SHOWN), (SHOWN, MEASURED | DRIVEN)],
    ids=["measured", "driven", "shown"],
)
def test_what_is_measured_driven_and_shown_know_nothing_of_each_other(room: set[str], strangers: set[str]) -> None:
    assert reached(GRAPH, room) & strangers == set()


def test_the_benchmarks_know_nothing_of_the_papers() -> None:
    benchmarks = {name for name in GRAPH if name.partition(".")[0] == "bench"}
    assert reached(GRAPH, benchmarks) == set()


def test_ordinary_programs_know_nothing_of_us() -> None:
    programs = {path: path.read_text() for path in SCRIPTS.glob("*.py")}
    assert len(programs) > 20
    ours = {*SOURCES, "fastsock"}
    assert {path.name: found for path, text in programs.items() if (found := arrows(text, ours))} == {}


# ---- that the tests above can fail ---------------------------------------------------------------------------


def test_arrows_are_found() -> None:
    assert GRAPH["bench.worker_main"] == {"bench.loops", "bench.worker", "bench.target"}
    assert "bench.plot" in GRAPH["bench.__main__"]  # imported in a function
    assert "bench.worker_main" in GRAPH["bench.worker_process"]  # started as a program
    assert "research.sovia.rpc" in GRAPH["research.sovia"]  # a loop's name in an order
    assert "research.emp" in GRAPH["research.catalogue"]
    assert {"bench.harness", "research.figures"} <= GRAPH["research.series"]
