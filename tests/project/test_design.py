"""What the pages about the internals say of the source is true: the states, the files, the names, the labels."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "design", "moving", "states", "glossary", "waiting", "processes", "asyncio-layer", "interpose", "decisions",
    "protocol", "verification",
)  # fmt: skip
NATIVE = sorted(
    path
    for room, ends in (
        ("core", "ch"),
        ("interpose", "ch"),
        ("launcher", "c"),
        ("fastsock/_native", ("pyx", "pxd", "pxi")),
    )
    for end in ends
    for path in (ROOT / room).rglob(f"*.{end}")
)
SOURCE = {path: path.read_text() for path in NATIVE}
FOLDERS = ("bench", "core", "docs", "examples", "fastsock", "interpose", "launcher", "models", "research", "tests")
ROOMS = [ROOT / name for name in FOLDERS]
PATHS = [path.relative_to(ROOT).as_posix() for room in ROOMS for path in (room, *room.rglob("*"))]
PYTHON = [path.read_text() for path in (ROOT / "fastsock").rglob("*.py")]
MODELS = {path.stem for path in (ROOT / "models").glob("*.pml")}
NAMES = set(re.findall(r"\w+", "\n".join([*SOURCE.values(), *PYTHON]))) | MODELS
"""Every word of the core, the skin and the package; the models."""

spec = importlib.util.spec_from_file_location("states", DOCS / "site/states.py")
assert spec is not None
assert spec.loader is not None
states = importlib.util.module_from_spec(spec)
spec.loader.exec_module(states)


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text()


def quoted(text: str) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


# ---- states --------------------------------------------------------------------------------------------------


def test_the_states_are_drawn_as_the_table_has_them() -> None:
    """`python docs/site/states.py` draws them anew."""
    for path, made in states.made().items():
        assert path.read_text() == made, path.name


def test_the_drawing_has_every_event_of_the_table() -> None:
    declared = re.findall(r"^    FS_EV_(\w+)\b", states.EVENTS.read_text(), re.MULTILINE)
    events = states.table(states.TABLE.read_text())
    assert len(declared) > 5
    assert list(events) == declared
    drawn = {event for row in states.ROWS for names in states.arrows(row, events).values() for event in names}
    assert drawn == set(declared)


def test_another_table_is_drawn_otherwise() -> None:
    text = states.TABLE.read_text()
    other = text.replace("FS_OUT | FS_SENDING_BACK", "FS_OUT", 2)
    assert other != text
    assert states.arrows("what this side sends", states.table(other))["BACK", "HELD"] == ["HOLD", "SEND_BACK_HELD"]
    assert states.drawn(states.table(other)) != states.drawn(states.table(text))


# ---- files and names -----------------------------------------------------------------------------------------


def absent_files(text: str) -> set[str]:
    """Files and folders in backticks that are not there. A name alone may be anywhere."""
    files = {word.strip("/") for word in quoted(text) if re.fullmatch(r"[\w./-]+(\.(c|h|py|pxd|svg)|/)", word)}
    return not_there(files)


def not_there(files: set[str]) -> set[str]:
    return {name for name in files if not any(f"/{path}".endswith(f"/{name}") for path in PATHS)}


def absent_names(text: str) -> set[str]:
    """Names of the core, and other functions in backticks, that no source has."""
    other = {word.rstrip("()") for word in quoted(text) if re.fullmatch(r"_?[a-z]+(_[a-z]+)+(\(\))?", word)}
    return unknown_of_core(text, NAMES) | (other - NAMES)


def unknown_of_core(text: str, known: set[str]) -> set[str]:
    """Names of the core that are not `known`, and families of names (fs_try_*) of which no member is."""
    core = set(re.findall(r"\b(?:fs|FS)_[A-Za-z]\w*", text))
    families = {name for name in core if f"{name}*" in text and any(member.startswith(name) for member in known)}
    return core - families - known


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    assert absent_files(text_of(page)) == set()
    assert absent_names(text_of(page)) == set()


def test_what_contributing_names_is_there() -> None:
    assert absent_files((ROOT / "CONTRIBUTING.md").read_text()) == set()


def test_what_is_not_there_is_found() -> None:
    assert absent_files("`core/ring/` `send.c` `core/ring/send.c` `cores/`") == {"core/ring/send.c", "cores"}
    assert absent_names("fs_post, `fs_pots`, FS_OUT and FS_OUTER, fs_try_*, fs_tri_*, `end_sleep`, `end_sheep()`") == {
        "fs_pots", "FS_OUTER", "fs_tri_", "end_sheep",
    }  # fmt: skip


# ---- glossary ------------------------------------------------------------------------------------------------


def glossary() -> list[str]:
    """The terms of docs/glossary.md, in its order."""
    return re.findall(r"^\| (?!term |---)(.+?) \|", text_of("glossary"), re.MULTILINE)


def missing_terms(terms: list[str]) -> set[str]:
    """Terms that are identifiers, and that no source has."""
    return {name for term in terms for name in quoted(term) if name not in NAMES}


def test_terms_of_the_glossary_that_are_identifiers_exist() -> None:
    terms = glossary()
    assert len(terms) > 60
    assert sum("`" in term for term in terms) > 10
    assert missing_terms(terms) == set()
    assert missing_terms(["`fs_path`, `fs_course`", "region"]) == {"fs_course"}


def test_the_glossary_is_alphabetical() -> None:
    terms = [term.strip("`").lower() for term in glossary()]
    assert terms == sorted(terms)


# ---- labels --------------------------------------------------------------------------------------------------


def test_the_labels_of_memory_order_are_those_of_the_page() -> None:
    table = text_of("protocol").partition("| label | store | load |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    code = "\n".join(SOURCE.values())
    assert {row[0] for row in rows} == set(re.findall(r"SYNC: ([a-z][a-z ]*?) - ", code))
    for row in rows:
        for name in re.findall(r"`(\w+)`", " ".join(row[1:3])):
            assert re.search(rf"\b{name}\(", code), f"{row[0]}: {name}"
