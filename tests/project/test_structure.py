"""Rules about the source itself: who imports whom, what pairs with what, and that nothing public lacks its words."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from harness.graphs import circles
from harness.processes import ended

import fastsock
from fastsock import _native

ROOT = Path(fastsock.__file__).parent
NATIVE = ROOT / "_native"
GENERATED = {path.with_suffix(".c") for path in NATIVE.glob("*.pyx")}
SOURCES = sorted(
    path
    for suffix in ("py", "pyi", "pyx", "pxd", "pxi", "h", "c")
    for path in ROOT.rglob(f"*.{suffix}")
    if path not in GENERATED
)
CORE = Path(__file__).parents[2] / "core"
CORE_SOURCES = sorted(CORE.rglob("*.[ch]"))
INTERPOSE = CORE.parent / "interpose"
INTERPOSE_SOURCES = sorted(INTERPOSE.rglob("*.[ch]"))
LONGEST = 500
"""Lines of a source file, at most: a longer one is two things."""
WIDEST = 140
"""Columns of a line of C, at most."""

LAYERS = (
    {"errors", "import_hooks"},
    {"observability", "statistics"},
    {"_native.core"},
    {"_native.libc_front", "_native.control", "_native.messages", "_native.transport_socket"},
    {"config"},
    {"path_events", "launch"},
    {"_native.endpoint", "channel_ends", "messages", "socket_class"},
    {"_native.transport", "channels"},
    {"_native.relay_protocol"},
    {"aio.sendfile", "aio.stdlib_loop", "aio.uvloop_loop"},
    {"aio.loops"},
    {"aio.policy"},
    {"aio.runner"},
    {"aio"},
    {"patching"},
    {""},  # the package itself
    {"advice", "exporters", "tools"},
    {"tools.unix_streams"},
    {"tools.columns", "tools.introspection", "tools.pcapng"},
    {"run_report", "tools.groups", "tools.taps"},
    {"_startup"},
    {"tools.checks", "tools.peers"},
    {"tools.doctor", "tools.export", "tools.ss", "tools.top", "tools.quickbench", "tools.tcpdump"},
    {"cli", "_startup.sitecustomize"},
    {"__main__"},
)
"""From the bottom to the top. A module imports from layers below its own only; see docs/design.md."""

LEAVES = {"errors", "import_hooks", "observability", "statistics"}
"""What every layer may use and what uses none; the native core does without even these."""


# ---- layers ------------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    """Relative to the package: "" for fastsock itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {
    module_name(path): path
    for path in SOURCES
    if path.suffix in (".py", ".pyx", ".pxd") and path != NATIVE / "__init__.py"
}


def named_modules(source: str, names: list[str]) -> set[str]:
    """The modules of this package that `from source import names` gets something from."""
    package, _, inside = source.partition(".")
    if package != "fastsock":
        return set()
    deeper = {f"{inside}.{name}".strip(".") for name in names} & MODULES.keys()
    whole = set() if deeper and len(deeper) == len(names) else {inside}
    return deeper | whole


def python_imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports by a relative name"
            found |= named_modules(node.module or "", [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found |= named_modules(alias.name, [])
    return found


INCLUDES = re.compile(r'^include "(.*)"', re.MULTILINE)


def cython_imports(path: Path) -> set[str]:
    text = path.read_text()
    text += "".join((path.parent / name).read_text() for name in INCLUDES.findall(text))
    found: set[str] = set()
    for source, names in re.findall(r"^\s*from (fastsock\S*) c?import \(?([^#\n]*)", text, re.MULTILINE):
        found |= named_modules(source, [name.split(" as ")[0].strip() for name in names.split(",")])
    for source in re.findall(r"^\s*c?import (fastsock\S*)", text, re.MULTILINE):
        found |= named_modules(source, [])
    return found


def imports(name: str) -> set[str]:
    path = MODULES[name]
    if path.suffix == ".py":
        return python_imports(path)
    return set().union(*(cython_imports(path.with_suffix(s)) for s in (".pyx", ".pxd") if path.with_suffix(s).exists()))


def layer(name: str) -> int:
    for number, names in enumerate(LAYERS):
        if name in names:
            return number
    pytest.fail(f"fastsock.{name} stands in no layer")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_downward_only(name: str) -> None:
    for other in imports(name) - {name}:
        assert layer(other) < layer(name), f"fastsock.{name} imports fastsock.{other}"
        if name.startswith("_native"):
            assert other.startswith("_native") or other == "path_events", f"fastsock.{name} imports fastsock.{other}"
        if name in LEAVES:
            assert other in LEAVES, f"the leaf fastsock.{name} imports fastsock.{other}"


def test_the_layers_are_those_of_the_package() -> None:
    assert set().union(*LAYERS) == MODULES.keys()


def test_imports_are_found() -> None:
    """The test above passes on what it does not see."""
    assert imports("socket_class") >= {"path_events", "_native.libc_front"}
    assert imports("_native.transport") >= {"_native.core", "_native.endpoint", "path_events"}  # the .pxd's too
    assert imports("aio.uvloop_loop") >= {"_native.transport", "path_events"}
    assert {"", "_startup"} <= imports("cli")


def test_the_finder_knows_every_module_of_the_shared_object() -> None:
    assert {path.stem for path in NATIVE.glob("*.pyx")} == _native.MODULES


def test_each_part_of_a_module_is_of_one_module() -> None:
    included = [name for path in NATIVE.glob("*.pyx") for name in INCLUDES.findall(path.read_text())]
    assert sorted(included) == sorted(path.name for path in NATIVE.glob("*.pxi"))


def test_no_test_waits_for_a_program_without_a_limit() -> None:
    """(What a soak runs is watched by its driver.)"""
    runs, unlimited = {"subprocess.run", "subprocess.check_call", "subprocess.check_output"}, []
    calls = [
        (path, call)
        for path in Path(__file__).parents[1].rglob("*.py")
        if "soak" not in path.parts and path.name != "test_unix_streams.py"  # (that is limited by its inner session)
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in runs
    ]
    for path, call in calls:
        if not {"timeout", None} & {keyword.arg for keyword in call.keywords}:
            unlimited.append(f"{path}:{call.lineno}")
    assert len(calls) > 40
    assert unlimited == []


# ---- the native part -----------------------------------------------------------------------------------------

LABEL = re.compile(r"SYNC: (?P<label>[a-z][a-z ]*?) - ")
NATIVE_SOURCES = [
    *CORE_SOURCES,
    *INTERPOSE_SOURCES,
    *(path for path in SOURCES if path.suffix in (".pxd", ".pxi", ".pyx")),
]


def test_every_sync_label_stands_at_both_ends() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in NATIVE_SOURCES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if label := LABEL.search(line):
                places[label["label"]].add(f"{path.name}:{number}")
    assert len(places) > 5
    alone = {label: found for label, found in places.items() if len(found) < 2}
    assert not alone


def test_each_acquire_and_release_has_a_label() -> None:
    """In its line, or close above it."""
    ordered = re.compile(r"\b[fi][sp]_(load_acquire|store_release)\(|__ATOMIC_ACQUIRE")
    bare, found = [], 0
    for path in NATIVE_SOURCES:
        if path.name == "atomics.h":
            continue
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if ordered.search(line):
                found += 1
                if not any(LABEL.search(near) for near in lines[max(0, number - 8) : number + 1]):
                    bare.append(f"{path.name}:{number + 1}: {line.strip()}")
    assert found > 40
    assert not bare


def test_no_source_file_is_too_long() -> None:
    sources = [*SOURCES, *CORE_SOURCES, *INTERPOSE_SOURCES]
    assert [path for path in sources if len(path.read_text().splitlines()) > LONGEST] == []


def test_no_line_of_c_is_too_wide() -> None:
    rooms = ["core", "interpose", "launcher", "tests", "examples", "bench", "research", "models"]
    sources = [path for room in rooms for path in sorted((CORE.parent / room).rglob("*.[ch]"))]
    assert len(sources) > 200
    assert [
        f"{path.relative_to(CORE.parent)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > WIDEST
    ] == []


CONNECTIONS = [CORE / f"include/fastsock{part}.h" for part in ("_reasons", "_types", "", "_poll", "_fork")]
"""fastsock.h and its parts, which it includes."""
PUBLIC = [*CONNECTIONS, CORE / "include/fastsock_loop.h", CORE / "include/fastsock_messages.h"]


# ---- the core ------------------------------------------------------------------------------------------------

ROOMS = (
    {"include"}, {"os"}, {"wire"}, {"ring"}, {"process", "transport", "events"}, {"conn"}, {"control"},
    {"messages", "ready"}, {"rendezvous"}, {"api"},
)  # fmt: skip
"""From the bottom to the top. A file includes files of its own room and of rooms below; see docs/design.md."""


def floor(path: Path) -> int:
    room = path.relative_to(CORE).parts[0]
    for number, rooms in enumerate(ROOMS):
        if room in rooms:
            return number
    pytest.fail(f"core/{room} stands on no floor")


def includes(path: Path) -> set[Path]:
    """Files of the core only; each is named from core/ on, but for those of the public header."""
    start = path.parent if path in PUBLIC else CORE
    return {start / name for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("path", CORE_SOURCES, ids=lambda path: path.relative_to(CORE).as_posix())
def test_includes_in_the_core_go_downward_only(path: Path) -> None:
    for other in includes(path):
        assert other.exists(), f"{path.name} includes {other}"
        assert other.parent == path.parent or floor(other) < floor(path), f"{path} includes {other}"


def core_graph() -> dict[str, set[str]]:
    """Which files of the core need which. A name, such as "ring/lock", is of the header and of the C file beside it."""

    def named(path: Path) -> str:
        return path.relative_to(CORE).with_suffix("").as_posix()

    graph: dict[str, set[str]] = defaultdict(set)
    for path in CORE_SOURCES:
        graph[named(path)] |= {named(other) for other in includes(path)} - {named(path)}
    return graph


def test_no_files_of_the_core_need_each_other() -> None:
    assert circles(core_graph()) == set()


def test_no_modules_need_each_other() -> None:
    assert circles({name: imports(name) - {name} for name in MODULES}) == set()


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}) == {
        frozenset("abc"),
        frozenset("de"),
    }
    assert circles(core_graph() | {"ring/robust_lock": {"ring/ring"}})


def test_a_front_end_below_libc_takes_the_public_header_alone() -> None:
    taken = {
        name for path in INTERPOSE_SOURCES for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)
    }
    assert taken == {"fastsock.h", "fastsock_loop.h"} | {path.name for path in INTERPOSE_SOURCES if path.suffix == ".h"}


INTERNAL = {
    "control": "introspection link", "os": "fd_reserve", "rendezvous": "local_address", "transport": "stream",
    "wire": "version",
}  # fmt: skip
"""Headers of the core, by room, that CPython's front end takes besides the public ones: layouts that tools read, and
what tests ask of the process. Connections are driven by public headers alone. This list only shrinks."""


def test_what_the_front_end_for_python_takes_besides() -> None:
    taken = re.compile(r'^cdef extern from "([a-z]+/\w+\.h)"', re.MULTILINE)
    takes = {name for path in NATIVE.glob("*.p[yx][xdi]") for name in taken.findall(path.read_text())}
    rest = {f"{room}/{name}.h" for room, names in INTERNAL.items() for name in names.split()}
    assert {name for name in takes if (CORE / name).exists()} == rest


def test_includes_in_the_core_are_found() -> None:
    """The test above passes on what it does not see."""
    assert includes(CORE / "ring/ring.h") == {CORE / "wire/region.h", CORE / "ring/robust_lock.h"}
    assert CORE / "conn/connection.h" in includes(CORE / "conn/state.h")
    assert CORE / "include/fastsock.h" in includes(CORE / "os/atomics.h")
    assert {path.parent.name for path in CORE_SOURCES} == set().union(*ROOMS)


WRITING = r"fs_(?:store|or|and|add|cas|exchange|count)\w*\(\s*&?"


def writes(place: str) -> str:
    return rf"{WRITING}[^,;\n]*{place}|(?:\+\+|--)[\w>.-]*{place}|{place}\s*(?:[|&^+-]?=(?!=)|\+\+|--)"


SKIN = [path for path in NATIVE_SOURCES if path.suffix in (".pxd", ".pxi", ".pyx")]
STATE = r"[>.]moved\b", r"(?:->|\.)(?:is|stands)\.\w+", r"\b[rt]x(?:->|\.)(?:ready|settled|returned)\b"
OWNED: dict[str, tuple[list[Path], str, set[Path]]] = {
    "atomics": (
        [*SOURCES, *CORE_SOURCES, *INTERPOSE_SOURCES],
        r"stdatomic|__atomic|__sync_|memory_order|\b_?[Aa]tomic_\w+|_Atomic\b",
        {CORE / "os/atomics.h", *CONNECTIONS[1:3], INTERPOSE / "atomics.h"},
    ),
    "Python": ([*CORE_SOURCES, *INTERPOSE_SOURCES], r"Python\.h|\b_?Py[A-Z]\w*|\bpyx", set()),
    "how a connection stands": (
        NATIVE_SOURCES,
        "|".join(map(writes, (*STATE, r"[>.]sending_step\b"))) + rf"|{WRITING}[^;\n]*\bFS_(?:SHUT|GONE)\b",
        {CORE / "conn/state.c"},
    ),
    "the ends of the streams": (
        NATIVE_SOURCES,
        "|".join(map(writes, (r"[>.](?:fin_sent|fin_taken)\b", r"\b[rt]x(?:->|\.)fin\b"))),
        {CORE / "ring/stream_end.h"},
    ),
    "what an undecided one does": (NATIVE_SOURCES, writes(r"path(?:->|\.)state"), {CORE / "rendezvous/path_state.c"}),
    "side locks": (  # such a pointer says that the caller has the lock; who looks without one names the field
        NATIVE_SOURCES,
        r"(?:own|side|\))(?:->|\.)(?:sender|receiver)\b(?!\.)",
        {CORE / "conn/side_lock.c"},
    ),
    "events of the table": (SKIN, r"\bfs_change_(?:sending|receiving|leaving)\b|\bFS_EV_\w+", set()),
    "what is shared": (SKIN, writes(r"(?:\b(?:own|rx|tx|side|half|new)|\bfs_own\([^()]*\))\.\w[\w.]*"), set()),
}
"""What is written or named where, and in which files alone it may be."""


@pytest.mark.parametrize("what", OWNED)
def test_what_has_one_home_is_touched_there_alone(what: str) -> None:
    sources, touches, homes = OWNED[what]
    assert {path for path in sources if re.search(touches, path.read_text())} == homes


@pytest.mark.parametrize(
    ("what", "text", "found"),
    [
        ("how a connection stands", "fs_and_sc(&fs_own(c)->moved, ~FS_OUT);", True),
        ("how a connection stands", "endpoint.c.stands.bridged = False", True),
        ("how a connection stands", "++c->is.life;", True),
        ("how a connection stands", "fs_cas32(&ring->tx->settled, FS_UNSETTLED, FS_REFUSED)", True),
        ("how a connection stands", "fs_or_sc(&ring->rx->doorbell, FS_GONE | FS_SHUT);", True),
        ("how a connection stands", "if (c->is.bridged == 1 && fs_load_sc(&own->moved) & FS_OUT) return;", False),
        ("how a connection stands", "fs_store_relaxed(&own->credited, moved);", False),
        ("the ends of the streams", "fs_exchange_sc(&fs_own(c)->receiver.fin_taken, 1)", True),
        ("the ends of the streams", "fs_store_sc(&c->ring.rx->finack, 1);", False),
        ("what an undecided one does", "if (path->state == FS_LOOKING) return;", False),
        ("side locks", "cdef fs_sender *sender = &endpoint.c.own.sender", True),
        ("side locks", "fs_load_relaxed(&fs_own(c)->receiver.taken)", False),
        ("what is shared", "fs_own(&endpoint.c).kernel_taken += mine", True),
        ("what is shared", "fs_and_sc(&endpoint.c.ring.rx.doorbell, ~<uint32_t>FS_GONE)", True),
        ("what is shared", "if own.fin_sent == fs_load_sc(&own.consumed):", False),
    ],
)
def test_touches_are_found(what: str, text: str, found: bool) -> None:
    assert bool(re.search(OWNED[what][1], text)) == found


STUBTEST_BESIDE_THE_POINT = (
    "__test__ is not present in stub",  # Cython's own
    "__pyx_capi__ is not present in stub",
    'stub does not have parameter "self"',  # as Python 3.13 sees native functions without parameters
    "is a disjoint base at runtime",  # nobody derives from Endpoint and from something else
    ".__call__ is inconsistent, stub does not have *args",  # a slot takes anything, as far as the runtime tells
    "has a default value but stub parameter does not",  # MISSING: left out, it raises what the stdlib raises
)


def test_stubs_say_what_the_native_modules_are(tmp_path: Path) -> None:
    ignoring = tmp_path / "mypy.ini"
    ignoring.write_text("[mypy]\n[mypy-fastsock.*]\nignore_errors = true\n")
    modules = [f"fastsock.{name}" for name, path in MODULES.items() if path.suffix == ".pyx"]
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "--mypy-config-file", str(ignoring), *modules]
    done = ended(command, None, MYPY_CACHE_DIR=str(tmp_path))
    found = [line for line in done.stdout.splitlines() if not any(why in line for why in STUBTEST_BESIDE_THE_POINT)]
    assert (found, done.stderr) == ([], "")
    assert done.returncode in (0, 1)


# ---- locks -------------------------------------------------------------------------------------------------


def functions(path: Path) -> dict[str, str]:
    """The bodies of a C file's functions."""
    text, found = path.read_text(), {}
    for head in re.finditer(r"^[A-Za-z_][^;={}#]*?\b(\w+)\([^;{}]*\) \{", text, re.MULTILINE):
        line, _, rest = text[head.end() :].partition("\n")
        found[head[1]] = line if line.endswith("}") else rest.partition("\n}")[0]
    return found


CHANNEL = {name: body for path in CORE.glob("control/*.[ch]") for name, body in functions(path).items()}


def test_the_table_lock_is_not_waited_for_with_the_front_end_s_lock() -> None:
    """The connection thread has it while it answers, and a process that waits with the GIL stands still."""
    waiting = {name: body for name, body in CHANNEL.items() if "pthread_mutex_lock(&fs_control_state.lock)" in body}
    assert waiting.keys() == {"fs_control_lock", "fs_control_lock_hosted"}
    steps = re.findall(
        r"fs_host_unlock|pthread_mutex_lock|pthread_mutex_unlock|fs_host_lock", waiting["fs_control_lock_hosted"]
    )
    assert steps == ["fs_host_unlock", "pthread_mutex_lock", "pthread_mutex_unlock", "fs_host_lock"]
    for path in NATIVE_SOURCES:
        assert path.parent.name == "control" or "fs_control_state" not in path.read_text(), path
    # `fs_control_lock` waits as it is, and is for the thread, which has no lock of the front end.
    threads = {name for name, body in CHANNEL.items() if "fs_control_lock(" in body}
    assert len(threads) > 3
    assert not threads & {
        name for name, body in CHANNEL.items() if re.search("fs_control_lock_hosted|fs_control_thread_start", body)
    }


def test_a_parcel_is_sent_without_the_table_lock() -> None:
    """It may be as long as 64 MiB, and takes the connection's own lock."""
    answers = set()
    for name, body in CHANNEL.items():
        held = False
        steps = r"fs_control_(lock_hosted|lock|unlock)\(|(fs_resend_unread|fs_handle_request|\banswer_asked)\("
        for lock, answer in re.findall(steps, body):
            assert not (answer and held), name
            held = lock != "unlock" if lock else held
            answers.add(answer)
        assert not held, name
    assert answers >= {"fs_resend_unread", "fs_handle_request", "answer_asked"}
