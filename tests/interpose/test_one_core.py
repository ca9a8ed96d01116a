"""One core per process, in libfastsock.so: for the Python package, for the C library's calls, and for both."""

from __future__ import annotations

import ctypes
import re
import shutil
import sys
from pathlib import Path

from harness.processes import ended

import fastsock
from fastsock import launch

RUN = (sys.executable, "-m", "fastsock", "run")
LIBRARY, SKIN = "libfastsock.so", "_core."

CONNECTED = """
import json, socket, sys
import fastsock
def ends(kind):
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = kind()
        near.connect(server.getsockname())
        return near, server.accept()[0]
for near, far in (ends(socket.socket), ends(fastsock.socket)):
    with near, far:
        for _ in range(20000):
            near.sendall(b"x")
            assert far.recv(9) == b"x"
            far.sendall(b"y")
            assert near.recv(9) == b"y"
            if fastsock.path_of(near).path == fastsock.path_of(far).path == "ring":
                break
        print(fastsock.path_of(near).path, fastsock.path_of(far).path)
print(fastsock.stats().connections_ring, fastsock.stats().messages_sent > 0)
"""


def mapped(said: str) -> list[str]:
    """The files of a process's memory map that have a core, once for each mapping that can be executed."""
    return [line.split()[-1] for line in said.splitlines() if "fastsock" in line and " r-xp " in line]


def test_preloaded_and_imported_it_is_one_core_with_one_table() -> None:
    script = CONNECTED + "print(open('/proc/self/maps').read())"
    said = ended([*RUN, "--libc", sys.executable, "-c", script]).stdout
    assert said.splitlines()[:3] == ["ring ring", "ring ring", "4 True"]
    assert [Path(name).name.partition(".")[0] for name in sorted(mapped(said))] == ["_core", "libfastsock"]
    assert launch.LIBRARY in mapped(said)


def bindings(folder: Path, *words: str, **variables: str) -> set[tuple[str, str]]:
    """(file, name) for each name that the loader has bound to the library."""
    ended(words, LD_DEBUG="bindings", LD_BIND_NOW="1", LD_DEBUG_OUTPUT=str(folder / "loader"), **variables)
    said = "".join(path.read_text(errors="replace") for path in folder.glob("loader.*"))
    found = re.findall(rf"binding file (\S+) \[0\] to \S*/{LIBRARY} \[0\]: normal symbol `(\w+)'", said)
    return {(Path(file).name, name) for file, name in found}


def is_own(file: str, name: str) -> bool:
    """The library's own, or a function of the core for the Cython modules."""
    return file == LIBRARY or (file.startswith(SKIN) and name.startswith("fs_"))


def test_the_import_alone_puts_nothing_in_place_of_the_c_library(tmp_path: Path) -> None:
    program = (sys.executable, "-c", "import fastsock, asyncio, ssl, select, subprocess")
    found = bindings(tmp_path, *program)
    assert any(file.startswith(SKIN) and name == "fs_libc_serves" for file, name in found)
    assert {(file, name) for file, name in found if not is_own(file, name)} == set()
    preloaded = bindings(tmp_path, *program, LD_PRELOAD=launch.LIBRARY)  # the control: there they would be seen
    assert any(name == "recv" and not is_own(file, name) for file, name in preloaded)


def test_a_package_of_another_build_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "fastsock"
    shutil.copytree(Path(fastsock.__file__).parent, package)
    library = package / LIBRARY
    data = library.read_bytes()
    build = (ctypes.c_char * 16).in_dll(ctypes.CDLL(str(library)), "fs_build").value
    library.unlink()
    library.write_bytes(data.replace(build, b"f" * 16))
    program = (sys.executable, "-c", "import fastsock")
    done = ended(program, None, LD_PRELOAD=str(library), PYTHONPATH="")
    assert "ImportError: another build of libfastsock.so is loaded in this process" in done.stderr
    assert ended(program, LD_PRELOAD=launch.LIBRARY).stderr == ""
