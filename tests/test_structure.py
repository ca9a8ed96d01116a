"""Rules about the source itself: who imports whom, what pairs with what, and that nothing public lacks its words."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from circles import circles
from processes import ended

import fastsock
from fastsock import _native, config

ROOT = Path(fastsock.__file__).parent
NATIVE = ROOT / "_native"
GENERATED = {path.with_suffix(".c") for path in NATIVE.glob("*.pyx")}
SOURCES = sorted(
    path
    for suffix in ("py", "pyi", "pyx", "pxd", "h", "c")
    for path in ROOT.rglob(f"*.{suffix}")
    if path not in GENERATED
)
CORE = Path(__file__).parent.parent / "core"
CORE_SOURCES = sorted(CORE.rglob("*.[ch]"))
LONGEST = 500
"""Lines of a source file, at most: a longer one is two things."""
TOO_LONG = {NATIVE / "queue.pyx", NATIVE / "vi.pyx"}
"""This list only shrinks."""

LAYERS = (
    {"errors", "imports"},
    {"config", "observability", "statistics"},
    {"_native.core_ring"},
    {"_native.core"},
    {"_native.channel", "_native.front", "_native.leaving", "_native.meeting"},
    {"_native.reports", "_native.sessions"},
    {"_native.endpoint"},
    {"_native.queue", "_native.vi"},
    {"_native.shown", "_native.sockets", "_native.telling"},
    {"_native.blocking", "_native.carrying"},
    {"_native.calls", "_native.connector", "_native.descriptors", "_native.transport"},
    {"_native.shim"},
    {"addresses"},
    {"rendezvous"},
    {"messages"},
    {"passing"},
    {"facade", "greenlets"},
    {"aio.transports"},
    {"aio.files", "aio.selector", "aio.uv"},
    {"aio.loops"},
    {"aio.policy"},
    {"aio.running"},
    {"aio"},
    {"patching"},
    {""},  # the package itself
    {"advice", "tools"},
    {"tools.columns", "tools.looking"},
    {"reporting"},
    {"_boot"},
    {"tools.checks", "tools.peers"},
    {"tools.doctor", "tools.ss", "tools.top", "tools.quickbench"},
    {"cli", "_boot.sitecustomize"},
    {"__main__"},
)
"""From the bottom to the top. A module imports from layers below its own only; see docs/design.md."""

LEAVES = {"errors", "config", "imports", "observability", "statistics"}
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


def cython_imports(path: Path) -> set[str]:
    text = path.read_text()
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
            assert other.startswith("_native"), f"fastsock.{name} imports fastsock.{other}"
        if name in LEAVES:
            assert other in LEAVES, f"the leaf fastsock.{name} imports fastsock.{other}"


def test_the_layers_are_those_of_the_package() -> None:
    assert set().union(*LAYERS) == MODULES.keys()


def test_imports_are_found() -> None:
    """The test above passes on what it does not see."""
    assert imports("facade") >= {"rendezvous", "_native.calls", "_native.connector", "_native.vi"}
    assert imports("rendezvous") >= {"addresses", "config"}
    assert imports("_native.calls") >= {"_native.sockets", "_native.blocking"}
    assert imports("_native.blocking") >= {"_native.sockets", "_native.vi", "_native.endpoint"}
    assert imports("_native.sockets") >= {"_native.vi", "_native.endpoint"}
    assert imports("_native.transport") >= {"_native.vi", "_native.carrying", "_native.telling"}
    assert imports("_native.telling") >= {"_native.queue", "_native.endpoint"}  # the .pxd's too
    assert imports("aio.uv") >= {"aio.transports", "config"}
    assert "" in imports("cli")
    assert "_boot" in imports("cli")


def test_no_module_of_the_skin_is_made_of_included_code() -> None:
    """An import tells which names are whose."""
    includes = re.compile(r"^include ", re.MULTILINE)
    assert {path.name for path in NATIVE.glob("*.p[yx]*") if includes.search(path.read_text())} == set()


def test_the_finder_knows_every_module_of_the_shared_object() -> None:
    assert {path.stem for path in NATIVE.glob("*.pyx")} == _native.MODULES


# ---- the native part -----------------------------------------------------------------------------------------

LABEL = re.compile(r"SYNC: (?P<label>[a-z][a-z ]*?) - ")
NATIVE_SOURCES = [*CORE_SOURCES, *(path for path in SOURCES if path.suffix in (".pxd", ".pyx"))]


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
    ordered = re.compile(r"\bfs_(load_acquire|store_release)\(")
    bare, found = [], 0
    for path in NATIVE_SOURCES:
        if path == CORE / "base/atomics.h":
            continue
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if ordered.search(line):
                found += 1
                if not any(LABEL.search(near) for near in lines[max(0, number - 8) : number + 1]):
                    bare.append(f"{path.name}:{number + 1}: {line.strip()}")
    assert found > 40
    assert not bare


def test_sync_labels_have_one_form() -> None:
    """So that the test above finds them all."""
    for path in [*SOURCES, *CORE_SOURCES]:
        for line in path.read_text().splitlines():
            if "SYNC:" in line and "`SYNC:`" not in line:
                assert LABEL.search(line), f"{path.name}: {line.strip()}"


def test_sync_labels_name_functions_that_there_are() -> None:
    """Only one end of a pair is in sight: a name that has changed leads nowhere."""
    called = set(re.findall(r"\b(fs_\w+)\(", "\n".join(path.read_text() for path in NATIVE_SOURCES)))
    for path in NATIVE_SOURCES:
        for line in path.read_text().splitlines():
            if label := LABEL.search(line):
                named = set(re.findall(r"\bfs_\w+", line[label.end() :]))
                assert named <= called, f"{path.name}: {line.strip()}"


def test_only_one_header_touches_atomics() -> None:
    words = re.compile(r"stdatomic|__atomic|__sync_|memory_order|\b_?[Aa]tomic_\w+|_Atomic\b")
    users = {path for path in [*SOURCES, *CORE_SOURCES] if words.search(path.read_text())}
    assert users == {CORE / "base/atomics.h"}


def test_no_source_file_is_too_long() -> None:
    sources = [*SOURCES, *CORE_SOURCES]
    assert {path for path in sources if len(path.read_text().splitlines()) > LONGEST} == TOO_LONG


# ---- the core ------------------------------------------------------------------------------------------------

ROOMS = (
    {"base"},
    {"wire"},
    {"ring"},
    {"registry", "transport", "waiter"},
    {"connection"},
    {"channel"},
    {"meeting"},
    {"include"},
)
"""From the bottom to the top. A file includes files of its own room and of rooms below; see docs/design.md."""


def floor(path: Path) -> int:
    room = path.relative_to(CORE).parts[0]
    for number, rooms in enumerate(ROOMS):
        if room in rooms:
            return number
    pytest.fail(f"core/{room} stands on no floor")


def includes(path: Path) -> set[Path]:
    """Files of the core only; each is named from core/ on."""
    return {CORE / name for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)}


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


TANGLED = {
    frozenset(f"channel/{name}" for name in (
        "asking", "dropping", "meetings", "relieving", "requests", "seen", "sets", "table", "thread",
    )),
    frozenset(f"connection/{name}" for name in (
        "hear", "leave", "leavers_peer", "lifeline", "mend", "receive", "relief", "ringing", "seat", "send", "turns",
        "wait",
    )),
}  # fmt: skip
"""Files of the core that need each other. This list only shrinks."""


def test_no_other_files_of_the_core_need_each_other() -> None:
    assert circles(core_graph()) == TANGLED


def test_no_modules_need_each_other() -> None:
    assert circles({name: imports(name) - {name} for name in MODULES}) == set()


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}) == {
        frozenset("abc"),
        frozenset("de"),
    }
    assert circles(core_graph() | {"ring/lock": {"ring/ring"}}) > TANGLED


def test_the_public_header_has_all_that_the_skin_takes() -> None:
    """What CPython's front end can do, one in C can do."""
    taken = re.compile(r'^cdef extern from "([a-z]+/\w+\.h)"', re.MULTILINE)
    takes = {name for path in NATIVE.glob("*.p[yx][xd]") for name in taken.findall(path.read_text())}
    takes = {name for name in takes if (CORE / name).exists()}
    assert len(takes) > 30
    assert {CORE / name for name in takes} <= includes(CORE / "include/fastsock.h")


def test_includes_in_the_core_are_found() -> None:
    """The test above passes on what it does not see."""
    assert includes(CORE / "ring/ring.h") == {CORE / "wire/layout.h", CORE / "ring/lock.h"}
    assert CORE / "connection/connection.h" in includes(CORE / "connection/state.h")
    assert CORE / "connection/send.h" in includes(CORE / "include/fastsock.h")
    assert {path.parent.name for path in CORE_SOURCES} == set().union(*ROOMS)


STANDING = r"[\w>.()-]*(?:->|\.)(?:is|stands)\.\w+"
SAID = r"\b[rt]x(?:->|\.)(?:ready|settled|returned)\b"
WRITING = r"fs_(?:store|or|and|add|swap_if|exchange|count)\w*\(\s*&?"


def writes_of(place: str) -> str:
    return rf"{WRITING}[^,;\n]*{place}|(?:\+\+|--)[\w>.-]*{place}|{place}\s*(?:[|&^+-]?=(?!=)|\+\+|--)"


WRITES_STATE = re.compile(
    "|".join(writes_of(place) for place in (r"[>.]moved\b", STANDING, SAID, r"[>.]sending_step\b"))
    + rf"|{WRITING}[^;\n]*\bFS_(?:SHUT|GONE)\b"
)
WRITES_END = re.compile(writes_of(r"[>.](?:fin_sent|fin_taken)\b") + "|" + writes_of(r"\b[rt]x(?:->|\.)fin\b"))


def test_only_the_table_of_states_writes_how_a_connection_stands() -> None:
    writers = {path for path in NATIVE_SOURCES if WRITES_STATE.search(path.read_text())}
    assert writers == {CORE / "connection/state.c"}


def test_only_one_header_writes_the_ends_of_the_streams() -> None:
    assert {path for path in NATIVE_SOURCES if WRITES_END.search(path.read_text())} == {CORE / "ring/ends.h"}


def test_the_skin_fires_no_event_of_the_table() -> None:
    events = re.compile(r"\bfs_change_(?:sending|receiving|leaving)\b|\bFS_EV_\w+")
    skin = [path for path in NATIVE_SOURCES if path.suffix in (".pxd", ".pyx")]
    assert {path.name for path in skin if events.search(path.read_text())} == set()


COURSE = r"course(?:->|\.)state"
WRITES_COURSE = re.compile(rf"(?:\+\+|--)\w*{COURSE}|{COURSE}\s*(?:[|&^+-]?=(?!=)|\+\+|--)")


def test_only_the_table_of_courses_writes_what_an_undecided_connection_does() -> None:
    writers = {path for path in NATIVE_SOURCES if WRITES_COURSE.search(path.read_text())}
    assert writers == {CORE / "meeting/course.c"}
    assert not WRITES_COURSE.search("if (course->state == FS_DOUBTING || c.course.state == FS_CONNECTING) return;")


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("fs_or_sc(&own->moved, FS_OUT);", True),
        ("fs_and_sc(&c->own->moved, ~FS_OUT);", True),
        ("fs_and_sc(&fs_own(c)->moved, ~FS_OUT);", True),
        ("fs_store_relaxed(&c->is.lost, 1);", True),
        ("fs_store_relaxed(&c->is.life, life);", True),
        ("c->is.bridged = 1;", True),
        ("endpoint.c.stands.bridged = False", True),
        ("c->is.life |= FS_KEPT;", True),
        ("++c->is.life;", True),
        ("fs_swap_if32(&c->is.life, life, life + 1)", True),
        ("fs_exchange_sc(&c->own->moved, FS_OUT);", True),
        ("fs_store_sc(&c->vi.rx->ready, FS_READY);", True),
        ("fs_swap_if32(&vi->tx->settled, FS_UNSETTLED, FS_REFUSED)", True),
        ("fs_store_sc(&c->vi.tx->returned, 1);", True),
        ("fs_or_sc(&c->vi.rx->doorbell, FS_GONE);", True),
        ("fs_or_sc(&vi->rx->doorbell, FS_EXPOSED | FS_SHUT);", True),
        ("sender->sending_step = 1;", True),
        ("if (sender->sending_step == 1) fs_note(c);", False),
        ("fs_or_sc(&c->vi.rx->doorbell, FS_EXPOSED);", False),
        ("if (fs_load_sc(&c->vi.tx->settled) == FS_UNSETTLED) s->ready = 1;", False),
        ("fs_or_sc(&page->ready[place / 64], bit);", False),
        ("if (c->is.bridged == 1 && fs_load_sc(&own->moved) & FS_OUT) return;", False),
        ("return self.c.stands.bridged == 1", False),
        ("uint32_t moved = fs_load_relaxed(&own->moved);", False),
        ("fs_store_relaxed(&own->credited, moved);", False),
    ],
)
def test_writes_of_the_state_are_found(text: str, writes: bool) -> None:
    assert bool(WRITES_STATE.search(text)) == writes


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("sender->fin_sent = 1;", True),
        ("fs_store_relaxed(&receiver->fin_taken, 1);", True),
        ("fs_store_sc(&vi->tx->fin, kind);", True),
        ("fs_exchange_sc(&c->own->receiver.fin_taken, 1)", True),
        ("fs_exchange_sc(&fs_own(c)->receiver.fin_taken, 1)", True),
        ("if (sender->fin_sent == 1 && fs_load_sc(&vi->rx->fin) == FS_BACK) return;", False),
        ("fs_store_sc(&c->vi.rx->finack, 1);", False),
    ],
)
def test_writes_of_the_ends_are_found(text: str, writes: bool) -> None:
    assert bool(WRITES_END.search(text)) == writes


MAKES_TURN = re.compile(r"(?:own|side|\))(?:->|\.)(?:sender|receiver)\b(?!\.)")


def test_a_turn_is_made_where_it_is_taken() -> None:
    """Such a pointer says that the caller has the lock. Who looks without a turn names the field."""
    makers = {path for path in NATIVE_SOURCES if MAKES_TURN.search(path.read_text())}
    assert makers == {CORE / "connection/turns.c"}


@pytest.mark.parametrize(
    ("text", "makes"),
    [
        ("fs_post_fin(&c->vi, &c->own->sender, FS_FIN);", True),
        ("return fs_side_of_leaver(leaver)->receiver;", True),
        ("cdef fs_sender *sender = &endpoint.c.own.sender", True),
        ("fs_post_fin(&c->vi, &fs_own(c)->sender, FS_FIN);", True),
        ("fs_load_relaxed(&fs_own(c)->receiver.taken)", False),
        ("fs_load_relaxed(&c->own->receiver.taken)", False),
        ("fs_take_doorbell_bytes(c, both.receiver);", False),
    ],
)
def test_turns_that_are_made_are_found(text: str, makes: bool) -> None:
    assert bool(MAKES_TURN.search(text)) == makes


def writes_what_is_shared(text: str) -> bool:
    """Whether Cython code writes a field of `struct fs_side` or of the ring, which is for the core."""
    shared = {"own", "rx", "tx", *re.findall(r"\bfs_(?:side|half) \*(\w+)", text)}
    place = rf"(?:\b(?:{'|'.join(sorted(shared))})|\bfs_own\([^()]*\))\.\w[\w.]*"
    atomic = rf"\bfs_(?:store|or|and|add|swap|count)\w*\(\s*&[\w.]*{place}"
    return bool(re.search(rf"{atomic}|{place}\s*(?:[|&^+-]?=(?!=))", text))


def test_the_skin_writes_nothing_that_is_shared() -> None:
    """Neither with other processes of the side nor with the peer."""
    skin = [path for path in NATIVE_SOURCES if path.suffix in (".pxd", ".pyx")]
    assert {path.name for path in skin if writes_what_is_shared(path.read_text())} == set()


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("fs_and_sc(&endpoint.c.vi.rx.doorbell, ~<uint32_t>FS_EXPOSED)", True),
        ("endpoint.c.own.kernel_taken += mine", True),
        ("fs_own(&endpoint.c).kernel_taken += mine", True),
        ("fs_store_relaxed(&fs_own(&self.c).send_buffer_before, size)", True),
        ("return fs_load_relaxed(&fs_own(&self.c).send_buffer_before) or None", False),
        ("cdef fs_side *new = fs_new_side()\nnew.pid_space = 0", True),
        ("cdef fs_side *new = fs_new_side()\nfs_store_sc(&new.holders, 1)", True),
        ("fs_count(&endpoint.c.vi.count.poll_ns, 1)", False),
        ("fs_count_child(endpoint.c.own, by)", False),
        ("if own.fin_sent == fs_load_sc(&own.consumed):", False),
        ("dict(posted=own.posted, fin_sent=own.fin_sent)", False),
    ],
)
def test_writes_of_what_is_shared_are_found(text: str, writes: bool) -> None:
    assert writes_what_is_shared(text) == writes


def test_the_core_knows_nothing_of_python() -> None:
    for path in CORE_SOURCES:
        assert not re.search(r"Python\.h|\b_?Py[A-Z]\w*|\bpyx", path.read_text()), path


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


# ---- what a reader finds -------------------------------------------------------------------------------------


def test_every_public_name_exists_and_is_documented() -> None:
    for name in fastsock.__all__:
        assert inspect.getdoc(getattr(fastsock, name)), f"fastsock.{name}"


@pytest.mark.parametrize("name", [name for name in vars(fastsock.socket) if not name.startswith("_")])
def test_every_method_of_the_facade_is_documented(name: str) -> None:
    assert inspect.getdoc(vars(fastsock.socket)[name])


def setting_docstrings() -> dict[str, str]:
    """The string that follows each field of Settings, as editors and the documentation show it."""
    tree = ast.parse(Path(config.__file__).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    found = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[ast.unparse(field.target)] = str(after.value.value)
    return found


@pytest.mark.parametrize("name", vars(config.Settings()))
def test_every_setting_has_words_and_a_variable(name: str) -> None:
    assert setting_docstrings().get(name)
    variable = f"FASTSOCK_{name.upper()}"
    with pytest.raises(fastsock.SettingError, match=variable) as caught:
        config.from_environment(environ={variable: "no such value"})
    assert caught.value.setting == name


# ---- locks -------------------------------------------------------------------------------------------------


def functions(path: Path) -> dict[str, str]:
    """The bodies of a C file's functions."""
    text, found = path.read_text(), {}
    for head in re.finditer(r"^[A-Za-z_][^;={}#]*?\b(\w+)\([^;{}]*\) \{", text, re.MULTILINE):
        line, _, rest = text[head.end() :].partition("\n")
        found[head[1]] = line if line.endswith("}") else rest.partition("\n}")[0]
    return found


CHANNEL = {name: body for path in CORE.glob("channel/*.[ch]") for name, body in functions(path).items()}


def test_the_table_lock_is_not_waited_for_with_the_front_end_s_lock() -> None:
    """The connection thread has it while it answers, and a process that waits with the GIL stands still."""
    waiting = {name: body for name, body in CHANNEL.items() if "pthread_mutex_lock(&fs_table.lock)" in body}
    assert waiting.keys() == {"fs_lock_table", "fs_take_table"}
    steps = re.findall(r"fs_let_go|pthread_mutex_lock|pthread_mutex_unlock|fs_take_again", waiting["fs_take_table"])
    assert steps == ["fs_let_go", "pthread_mutex_lock", "pthread_mutex_unlock", "fs_take_again"]
    for path in NATIVE_SOURCES:
        assert path.parent.name == "channel" or "fs_table" not in path.read_text(), path
    # `fs_lock_table` waits as it is, and is for the thread, which has no lock of the front end.
    threads = {name for name, body in CHANNEL.items() if "fs_lock_table(" in body}
    assert len(threads) > 3
    assert not threads & {name for name, body in CHANNEL.items() if re.search("fs_take_table|fs_ensure_thread", body)}


def test_a_parcel_is_sent_without_the_table_lock() -> None:
    """It may be as long as 64 MiB, and takes the connection's own lock."""
    answers = set()
    for name, body in CHANNEL.items():
        held = False
        steps = r"fs_(lock|take|unlock)_table\(|(fs_put_back|fs_answer_ask|\banswer_asked)\("
        for lock, answer in re.findall(steps, body):
            assert not (answer and held), name
            held = lock in ("lock", "take") if lock else held
            answers.add(answer)
        assert not held, name
    assert answers >= {"fs_put_back", "fs_answer_ask", "answer_asked"}


# ---- what a program finds ------------------------------------------------------------------------------------

IMPORT_EVERYTHING = """
import socket
names = list(socket.__all__)
import fastsock
fastsock.patch()
assert socket.socket is fastsock.socket
assert [name for name in names if not hasattr(socket, name)] == []
assert names == socket.__all__
namespace = {}
exec("from socket import *", namespace)
assert namespace.keys() >= set(names)
assert namespace["socket"] is fastsock.socket
print("imported", len(names))
"""


def test_everything_in_socket_is_importable_under_patch() -> None:
    done = ended([sys.executable, "-c", IMPORT_EVERYTHING])
    assert done.stderr == ""
    assert done.stdout.startswith("imported")
