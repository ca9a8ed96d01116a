"""Starts programs that are not Python under fastsock, by LD_PRELOAD, and says which programs cannot use it.

The library (interpose/) reads all settings from one variable, which `environment` checks and sets. In a Python process
below `fastsock run` the library waits for the package, which calls `patch()`. Below `fastsock run --libc` it serves
Python from the start, and `patch()` is not called.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from fastsock._native import libc_front
from fastsock.config import IGNORED, LIBRARY_STATS, SETTINGS, Settings, text_of

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = [
    "LIBRARY",
    "CannotStart",
    "Program",
    "cannot_execute",
    "check_script",
    "environment",
    "find",
    "give_signals_back",
    "take_ignored",
]

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libfastsock.so")


@dataclass(frozen=True)
class Program:
    """A program that `fastsock run` can execute directly."""

    path: str
    python: bool
    """True for a Python interpreter or script, in which the package calls `patch()`."""
    refused: str = ""
    """Why the program cannot use fastsock; empty if it can."""
    harmed: bool = False
    """True if LD_PRELOAD keeps the program from starting, or makes its loader complain."""


class CannotStart(RuntimeError):
    """The program cannot be executed."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status
        """The exit status that a shell gives: 127 if there is no such program, 126 if it cannot be executed."""


def cannot_execute(name: str, error: OSError) -> CannotStart:
    """Returns the error for a program that the kernel refuses to execute."""
    exists = os.path.exists(name) if os.sep in name else shutil.which(name) is not None
    why = error.strerror or str(error)
    if exists and isinstance(error, FileNotFoundError):
        why = "its interpreter or loader does not exist"
    return CannotStart(f"{name}: {why}", 126 if exists else 127)


def check_script(name: str) -> None:
    """Checks a name that `find` leaves to Python. Raises CannotStart if it is none that Python can run."""
    if name.startswith("-"):
        return
    if os.path.isdir(name):
        if not os.path.exists(os.path.join(name, "__main__.py")):
            raise CannotStart(f"{name} is a folder without a __main__.py", 126)
    elif os.path.exists(name):
        with open(name, "rb") as file:
            if file.read(2) == b"#!" and b"python" not in file.readline():
                raise CannotStart(f"{name} is not executable", 126)
    elif os.path.splitext(name)[1] not in (".py", ".pyc", ".pyz", ".zip"):
        raise CannotStart(f"{name}: {'no such file or directory' if os.sep in name else 'command not found'}", 127)


def find(name: str) -> Program | None:
    """Returns the program of this name: a file, or a command on the PATH. Returns None if `python NAME` should be run:
    for a script without an interpreter line, a folder, a zip file, an option, or a name that does not exist."""
    if name.startswith("-"):
        return None
    here = os.path.isfile(name) or os.path.exists(os.path.join(name, "__main__.py"))  # no mere folder: /etc has "nginx"
    path = name if here or os.sep in name else shutil.which(name)
    if path is None or not os.path.isfile(path):
        return None
    return _program(path, here)


def _program(path: str, here: bool, depth: int = 0) -> Program | None:
    """Returns the program in a file, as `find`. `here`: the file was named itself."""
    with open(path, "rb") as file:
        head = file.read(256)
        if head.startswith(b"\x7fELF"):
            refused, harmed = _refusal(path, file)
            return Program(path, _is_python(path), refused, harmed)
    if not head.startswith(b"#!") or not os.access(path, os.X_OK):
        return None
    words = head[2:].partition(b"\n")[0].decode(errors="replace").split()
    interpreters = [word for word in words if not word.startswith("-") and os.path.basename(word) != "env"]
    python = bool(interpreters) and _is_python(interpreters[0])
    if python and here:
        return None
    interpreter = shutil.which(interpreters[0]) if interpreters else None
    found = _program(interpreter, False, depth + 1) if interpreter and depth < INTERPRETERS else None
    refused = f"its interpreter is {interpreter}, and {found.refused}" if found and found.refused else ""
    return Program(path, python, refused, found is not None and found.harmed)


INTERPRETERS = 4
"""Scripts whose interpreter is a script: the kernel follows as many."""


def _is_python(path: str) -> bool:
    return os.path.basename(path).startswith("python")


# ---- programs that cannot use fastsock -------------------------------------------------------------------------

REFUSALS = {
    libc_front.STATIC: "it is statically linked, so LD_PRELOAD has no effect",
    libc_front.GO: "Go programs call the kernel directly",
    libc_front.FOREIGN: "it is not a 64-bit ELF program for this CPU",
    libc_front.MUSL: "its C library is musl; glibc is needed",
    libc_front.SANITIZED: "the shared library of its sanitizer has to be loaded first",
}
HARMED = {libc_front.FOREIGN, libc_front.MUSL, libc_front.SANITIZED}


def _refusal(path: str, file: BinaryIO) -> tuple[str, bool]:
    """Returns why a program cannot use fastsock, or "", and whether LD_PRELOAD harms it."""
    kind = libc_front.program_kind(file.fileno())
    if _changes_user(path):
        return "it is setuid or has capabilities, so the loader ignores LD_PRELOAD", kind in HARMED
    return REFUSALS.get(kind, ""), kind in HARMED


def _changes_user(path: str) -> bool:
    """Returns true if the program gets other rights than this process has, so that the loader trusts its environment
    less (AT_SECURE of getauxval(3)). Root's own setuid programs get none when root starts them."""
    status = os.stat(path)
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return True
    if status.st_mode & stat.S_ISGID and status.st_gid != os.getgid():
        return True
    return os.getuid() != 0 and "security.capability" in _attributes(path)


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError:
        return []


# ---- signals ---------------------------------------------------------------------------------------------------


def take_ignored() -> int:
    """Returns the signals that the parent of the command has left ignored: bit 0 is signal 1. Takes what says so out of
    the environment. It is 0 if nobody has noted them (`python -m fastsock`): most parents leave none ignored."""
    return int(os.environ.pop(IGNORED, "") or "0", 16)


def give_signals_back(ignored: int) -> None:
    """Undoes what Python's start has done to signals, before this process becomes another program: only those are
    ignored that were ignored before."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN if ignored >> (number - 1) & 1 else signal.SIG_DFL)


# ---- the environment -------------------------------------------------------------------------------------------


SANITIZERS = ("libasan.so", "libtsan.so", "libhwasan.so", "liblsan.so", "libclang_rt.")
"""Libraries that have to be the first ones."""


def environment(
    inherited: Mapping[str, str], settings: Settings, stats: str | None, harmed: bool = False
) -> dict[str, str]:
    """Returns the environment that loads the library into a program and its children; one without the library if the
    program is harmed by it, or `enabled` is 0. `stats`: the file for the program's statistics, or None.

    Raises RuntimeError if the library does not exist or if LD_PRELOAD cannot name it."""
    asked = {**inherited, SETTINGS: text_of(settings)}
    others = [word for word in asked.pop("LD_PRELOAD", "").replace(":", " ").split() if word != LIBRARY]
    if harmed or not settings.enabled:
        return {**asked, "LD_PRELOAD": ":".join(others)} if others else asked
    if not os.path.exists(LIBRARY):
        raise RuntimeError(f"{LIBRARY} is missing: reinstall fastsock, or build it with pip install -e .")
    if " " in LIBRARY or ":" in LIBRARY:
        raise RuntimeError(
            f"LD_PRELOAD cannot name {LIBRARY}: install fastsock in a folder whose path has no space and no colon"
        )
    first = [word for word in others if os.path.basename(word).startswith(SANITIZERS)]
    asked["LD_PRELOAD"] = ":".join([*first, LIBRARY, *(word for word in others if word not in first)])
    if stats is not None:
        # This process becomes the program, so the process id tells the program from its children.
        asked[LIBRARY_STATS] = f"{os.getpid()}:{os.path.abspath(stats)}"
    return asked
