"""Rules about the source itself: who imports whom, what pairs with what, and that nothing public lacks its words."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import attrs
import pytest

import fastsock
from fastsock import config

ROOT = Path(fastsock.__file__).parent
NATIVE = ROOT / "_native"
GENERATED = {path.with_suffix(".c") for path in NATIVE.glob("*.pyx")}
SOURCES = sorted(
    path
    for suffix in ("py", "pyi", "pyx", "pxd", "pxi", "h", "c")
    for path in ROOT.rglob(f"*.{suffix}")
    if path not in GENERATED
)
LONGEST = 1000
"""Lines of a source file, at most; from 500 on one asks which two things it is."""

LAYERS = (
    {"errors", "imports"},
    {"config", "observability"},
    {"_native.headers"},
    {"_native.vi"},
    {"_native.aio", "_native.calls", "_native.connector"},
    {"addresses", "regions", "sessions", "thread"},
    {"rendezvous"},
    {"forks", "passing"},
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
    {"tools.looking"},
    {"reporting"},
    {"_boot"},
    {"tools.checks"},
    {"tools.doctor", "tools.ss", "tools.top", "tools.quickbench"},
    {"cli", "_boot.sitecustomize"},
    {"__main__"},
)
"""From the bottom to the top. A module imports from layers below its own only; see docs/design.md."""

LEAVES = {"errors", "config", "imports", "observability"}
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
    """Of a module with its .pxi parts."""
    text = path.read_text()
    parts = re.findall(r'^include "(.*)"', text, re.MULTILINE)
    text = "\n".join([text, *((path.parent / part).read_text() for part in parts)])
    found: set[str] = set()
    for source, names in re.findall(r"^\s*from (fastsock\S*) c?import \(?(.*)", text, re.MULTILINE):
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
    assert imports("rendezvous") >= {"addresses", "regions"}
    assert imports("_native.calls") >= {"_native.vi", "_native.headers"}
    assert imports("_native.aio") >= {"_native.vi", "_native.headers"}
    assert imports("aio.uv") >= {"aio.transports", "config", "thread"}
    assert "" in imports("cli")
    assert "_boot" in imports("cli")


# ---- the native core -----------------------------------------------------------------------------------------

LABEL = re.compile(r"SYNC: (?P<label>[a-z][a-z ]*?) - ")


def test_every_sync_label_stands_at_both_ends() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        if path.suffix in (".h", ".pxd", ".pxi", ".pyx"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if label := LABEL.search(line):
                    places[label["label"]].add(f"{path.name}:{number}")
    assert len(places) > 5
    alone = {label: found for label, found in places.items() if len(found) < 2}
    assert not alone


def test_sync_labels_have_one_form() -> None:
    """So that the test above finds them all."""
    for path in SOURCES:
        for line in path.read_text().splitlines():
            if "SYNC:" in line and "`SYNC:`" not in line:
                assert LABEL.search(line), f"{path.name}: {line.strip()}"


def test_only_one_header_touches_atomics() -> None:
    words = re.compile(r"stdatomic|__atomic|__sync_|memory_order|\b_?[Aa]tomic_\w+|_Atomic\b")
    users = {path.name for path in SOURCES if words.search(path.read_text())}
    assert users == {"atomics.h"}


def test_no_source_file_is_too_long() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


STUBTEST_BESIDE_THE_POINT = (
    "__test__ is not present in stub",  # Cython's own
    "__pyx_capi__ is not present in stub",
    'stub does not have parameter "self"',  # as Python 3.13 sees native functions without parameters
    "is a disjoint base at runtime",  # nobody derives from Endpoint and from something else
    ".__call__ is inconsistent, stub does not have *args",  # a slot takes anything, as far as the runtime tells
    "has a default value but stub parameter does not",  # MISSING: left out, it raises what the stdlib raises
)


@pytest.mark.timeout(120)  # mypy reads its typeshed first
def test_stubs_say_what_the_native_modules_are(tmp_path: Path) -> None:
    ignoring = tmp_path / "mypy.ini"
    ignoring.write_text("[mypy]\n[mypy-fastsock.*]\nignore_errors = true\n")
    modules = [f"fastsock.{name}" for name, path in MODULES.items() if path.suffix == ".pyx"]
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "--mypy-config-file", str(ignoring), *modules]
    done = subprocess.run(
        command,
        cwd=ROOT.parent,
        env={**os.environ, "MYPY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if not any(why in line for why in STUBTEST_BESIDE_THE_POINT)]
    assert (found, done.stderr) == ([], "")
    assert done.returncode in (0, 1)


# ---- what a reader finds -------------------------------------------------------------------------------------


def test_every_public_name_exists_and_is_documented() -> None:
    for name in fastsock.__all__:
        assert inspect.getdoc(getattr(fastsock, name)), f"fastsock.{name}"


@pytest.mark.filterwarnings("ignore:'asyncio.*Policy' is deprecated")  # aio.policy, from Python 3.14 on
@pytest.mark.parametrize("name", sorted(name for name, path in MODULES.items() if path.suffix == ".py"))
def test_every_module_says_what_it_is(name: str) -> None:
    tree = ast.parse(MODULES[name].read_text())
    assert ast.get_docstring(tree), f"fastsock.{name}"
    exported = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
    ]
    for public in exported[0] if exported else ():
        module = importlib.import_module(f"fastsock.{name}".rstrip("."))
        assert hasattr(module, public), f"fastsock.{name}.__all__: {public}"


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


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(config.Settings)])
def test_every_setting_has_words_and_a_variable(name: str) -> None:
    assert setting_docstrings().get(name)
    variable = f"FASTSOCK_{name.upper()}"
    with pytest.raises(fastsock.SettingError, match=variable) as caught:
        config.from_environment(environ={variable: "no such value"})
    assert caught.value.setting == name


# ---- locks -------------------------------------------------------------------------------------------------


def enclosing(lines: list[str], number: int) -> list[str]:
    """The heads of the blocks that a line is in."""
    heads, depth = [], len(lines[number]) - len(lines[number].lstrip())
    for line in reversed(lines[:number]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < depth:
            heads.append(line.strip())
            depth = indent
    return heads


def test_the_table_lock_is_not_waited_for_with_the_gil() -> None:
    """The connection thread has it while it answers, and a process that waits with the GIL stands still."""
    waits = 0
    for path in NATIVE.glob("*.pxi"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if "pthread_mutex_lock(&" not in line or "int pthread_mutex_lock" in line:
                continue
            waits += 1
            heads = enclosing(lines, number)
            assert any(re.search(r"\bnogil:$", head) for head in heads), f"{path.name}:{number + 1}"
    assert waits > 3


def test_a_parcel_is_sent_without_the_table_lock() -> None:
    """It may be as long as 64 MiB, and takes the endpoint's own lock."""
    text = (NATIVE / "requests.pxi").read_text()
    body = text[text.index("cdef void answer_requests") :].split("\ncdef ")[0].split("\ndef ")[0]
    steps = re.findall(r"pthread_mutex_(lock|unlock)|(put_back|ring_for_asker)\(", body)
    held = False
    for lock, answer in steps:
        assert not (answer and held)
        held = lock == "lock" if lock else held
    assert [answer for _, answer in steps if answer] == ["put_back", "ring_for_asker"]


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
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("imported")
