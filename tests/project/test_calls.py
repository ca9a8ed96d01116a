"""Which files of the native part call which: what a compiler leaves undefined in one file, another one defines.

Includes (test_structure.py) say what a file may know. Calls say whom it needs, also where one header is all that both
include. Variables count as functions do."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.graphs import circles
from harness.processes import MadeOnce, ended

from project.test_structure import CORE, ROOMS

ROOT = CORE.parent

INTERPOSE = (
    "kernel_call process_state setting_table sleep_call",
    "libc_functions",
    "signals",
    "fd_table",
    "epoll_instances own_numbers program_log",
    "core_calls report services",
    "handed_over program_read settings",
    "call program_file",
    "connection_list fallback other_programs send_recv",
    "going_without pairs",
    "connection_lifecycle",
    "socket_options",
    "io_calls new_numbers own_tables poll_calls",
    "process relocations socket_calls",
    "install loop_driven raw_syscalls",
)
"""The files of interpose/, from the bottom to the top. A file calls files of layers below its own."""

Calls = Mapping[str, Mapping[str, set[str]]]
"""File -> file that it calls -> the functions."""


def calls_among(objects: Path) -> Calls:
    """Of object files, each named after its source with - for /."""
    defined: dict[str, str] = {}
    needed: dict[str, set[str]] = defaultdict(set)
    names = {path.name: path.name.removesuffix(".c.o").replace("-", "/") for path in objects.glob("*.o")}
    told = subprocess.run(
        ["nm", "-P", "-A", *sorted(names)], cwd=objects, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    for file, name, kind in re.findall(r"^(\S+): (\S+) (\w)", told, re.MULTILINE):
        if kind == "U":
            needed[names[file]].add(name)
        elif kind in "TDBRVWC":
            defined[name] = names[file]
    calls: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in names.values()}
    for file, wanted in needed.items():
        for name in wanted & defined.keys():
            if defined[name] != file:
                calls[file][defined[name]].add(name)
    return calls


@pytest.fixture(scope="module")
def calls(made_once: MadeOnce) -> Calls:
    def make(folder: Path) -> None:
        assert ended([ROOT / "interpose/compile", folder, "-O0", "-g0"]).stderr == ""

    return calls_among(made_once("calls", make) / "objects")


def of_the_core(calls: Calls) -> Calls:
    """(The C library's functions, which interpose/ has too, are the table's to call.)"""

    def inside(called: Mapping[str, set[str]]) -> dict[str, set[str]]:
        return {other.removeprefix("core/"): names for other, names in called.items() if other.startswith("core/")}

    return {file.removeprefix("core/"): inside(called) for file, called in calls.items() if file.startswith("core/")}


def test_calls_in_the_core_go_downward_only(calls: Calls) -> None:
    floors = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    upward = {
        (file, other): names
        for file, called in of_the_core(calls).items()
        for other, names in called.items()
        for room, there in [(file.partition("/")[0], other.partition("/")[0])]
        if room != there and floors[there] >= floors[room]
    }
    assert upward == {}


def test_no_files_of_the_core_call_each_other_in_a_circle(calls: Calls) -> None:
    assert circles({file: set(called) for file, called in of_the_core(calls).items()}) == set()


def test_calls_are_found(calls: Calls) -> None:
    """The tests above pass on what they do not see."""
    core = of_the_core(calls)
    assert len(core) > 70
    assert {"fs_lock_send_within", "fs_unlock_send"} & core["conn/send"]["conn/side_lock"]
    assert "fs_front" in core["api/path"]["api/whole"]


# ---- the front end -------------------------------------------------------------------------------------------


def test_calls_in_the_front_end_go_downward_only(calls: Calls) -> None:
    """Its own: a program's, such as read(2), go to the file that serves them, from wherever they are made by number."""
    layer = {f"interpose/{name}": number for number, names in enumerate(INTERPOSE) for name in names.split()}
    assert layer.keys() == {file for file in calls if file.startswith("interpose/")}
    upward = {}
    for file in layer:
        for other, names in calls[file].items():
            own = {name for name in names if name.startswith(("ip_", "fs_")) or name == "real"}
            assert other.startswith("interpose/") or all(name.startswith("fs_") for name in names)
            if other in layer and layer[other] >= layer[file]:
                upward[file, other] = own
    assert {arrow: names for arrow, names in upward.items() if names} == {}


def test_the_core_calls_no_front_end(calls: Calls) -> None:
    """But the C library's functions, of whoever stands in front of them."""
    found = {name for file, called in calls.items() if file.startswith("core/") for other, names in called.items()
             if other.startswith("interpose/") for name in names}  # fmt: skip
    assert found
    assert not any(name.startswith(("ip_", "fs_")) for name in found)
