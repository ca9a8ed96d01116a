"""The table of the C library's functions, and what the library shows and calls."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from harness.processes import ROOT

from fastsock import launch, path_events
from fastsock._native import libc_front

from .test_interpose import COMPILER, INTERPOSE


def shown() -> set[str]:
    """What the library shows."""
    return names_of("--defined-only", Path(launch.LIBRARY))


def names_of(kind: str, file: Path) -> set[str]:
    """What a loaded object defines (--defined-only), or takes from others (--undefined-only)."""
    words = ["nm", "--dynamic", kind, str(file)]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    return {line.split()[-1].partition("@")[0] for line in told.splitlines()}


def is_core_s(name: str) -> bool:
    return name.startswith("fs_")


def test_of_the_core_the_library_shows_the_public_header_and_what_python_takes() -> None:
    headers = "".join((ROOT / f"core/include/{name}.h").read_text() for name in ("fastsock_types", "fastsock"))
    public = set(re.findall(r"^(?!static)[a-z][\w ]*?[ *](fs_\w+)\(", headers, re.MULTILINE))
    (skin,) = Path(libc_front.__file__).parent.glob("_core*.so")
    taken = set(filter(is_core_s, names_of("--undefined-only", skin)))
    taken |= set(re.findall(r"library\.(fs_\w+)", (ROOT / "fastsock/_startup/sitecustomize.py").read_text()))
    assert len(public) > 60
    assert set(filter(is_core_s, shown())) == public | taken


def test_the_library_shows_functions_of_the_c_library() -> None:
    exports = (INTERPOSE / "exports.map").read_text()
    named = re.findall(r"\b(\w+);", exports.partition("global:")[2].partition("local:")[0])
    listed = {name for name in named if not is_core_s(name)}
    assert {name for name in shown() if not is_core_s(name)} == listed
    libc = subprocess.run(
        [COMPILER, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    assert listed <= names_of("--defined-only", Path(libc))


def test_every_function_of_the_table_stands_in_its_place() -> None:
    table = set(re.findall(r"^    E\([^,]+, (\w+),", (INTERPOSE / "libc_functions.h").read_text(), re.MULTILINE))
    assert len(table) > 40
    assert table <= shown()


def test_the_core_calls_the_c_library_and_not_ours() -> None:
    """What of the core's table the library stands in front of is set to the C library's own."""
    table = (ROOT / "core/os/syscalls.h").read_text()
    calls = set(re.findall(r"^    (?:CALL|RAW)\([\w *]+, (\w+),", table, re.MULTILINE))
    given = set(re.findall(r"FS_(?:SAME|OWN)\((\w+)\)|\.(\w+) = \w", (INTERPOSE / "core_calls.c").read_text()))
    assert len(calls) > 50
    assert calls & shown() <= {name for names in given for name in names}


def test_the_texts_of_reasons_stand_in_one_place() -> None:
    """In core/include/fastsock_types.h."""
    folders = [ROOT / name for name in ("core", "fastsock", "interpose")]
    sources = [path for folder in folders for kind in ("h", "py", "pyx") for path in folder.rglob(f"*.{kind}")]
    said = "".join(path.read_text() for path in [*sources, *(ROOT / "core").rglob("*.c"), *INTERPOSE.glob("*.c")])
    assert len(path_events.REASONS) > 15
    assert {text: said.count(f'"{text}"') for text in path_events.REASONS} == dict.fromkeys(path_events.REASONS, 1)
