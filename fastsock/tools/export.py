"""`fastsock export`: the library and its launcher in a folder, for programs where there is no Python."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import fastsock
from fastsock import launch

__all__ = ["FILES", "export"]

MUSL = os.path.join(launch.HERE, "musl")
"""Built where musl-gcc was found: a library for programs of musl, and a launcher that needs no C library."""

FILES = {
    "libfastsock.so": [launch.LIBRARY],
    "libfastsock-musl.so": [os.path.join(MUSL, "libfastsock-musl.so")],
    "fastsock-run": [os.path.join(MUSL, "fastsock-run"), launch.LAUNCHER],
}
"""Name in the folder -> where it may be, best first."""

README = """\
fastsock {version}: TCP between programs on one host, carried over shared memory.

A program and what it starts use it by one variable, with this folder's name where they run:

    LD_PRELOAD=/fastsock/libfastsock.so          programs of glibc (Debian, Ubuntu, Fedora ...)
    LD_PRELOAD=/fastsock/libfastsock-musl.so     programs of musl (Alpine)

or by the launcher, which takes the right library and says in one line if a program cannot use it:

    /fastsock/fastsock-run [--stats FILE] [--SETTING VALUE] ... PROGRAM [ARGUMENT ...]

Settings are variables, such as FASTSOCK_POLL_US=0. FASTSOCK_ENABLED=0 leaves everything in the kernel. Nothing here
needs Python, writes a file, or knows where it is. Here are: {files}.
"""


def export(folder: str) -> list[str]:
    """Puts the files into a folder, which is made if it does not exist. Returns their names. A program that has one of
    them loaded keeps it: each file is put in place as a whole."""
    into, done = Path(folder), []
    into.mkdir(parents=True, exist_ok=True)
    for name, sources in FILES.items():
        source = next((path for path in sources if os.path.exists(path)), None)
        if source is not None:
            _put(into / name, Path(source).read_bytes(), 0o755)
            done.append(name)
    text = README.format(version=fastsock.__version__, files=", ".join(done))
    _put(into / "README", text.encode(), 0o644)
    return [*done, "README"]


def _put(file: Path, content: bytes, mode: int) -> None:
    made = file.with_name(f".{file.name}.{os.getpid()}")
    made.write_bytes(content)
    made.chmod(mode)
    shutil.move(made, file)
