"""Starts programs that are not Python under fastsock, by the launcher (launcher/run.c), and checks those that are.

In a Python process below `fastsock run` the library waits for the package, which calls `patch()`. Below `fastsock run
--libc` it serves Python from the start, and `patch()` is not called.
"""

from __future__ import annotations

import os
import signal

from fastsock._native import libc_front
from fastsock.config import IGNORED

__all__ = ["LAUNCHER", "LIBRARY", "CannotStart", "check_script", "give_signals_back", "is_program", "take_ignored"]

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY, LAUNCHER = os.path.join(HERE, "libfastsock.so"), os.path.join(HERE, "fastsock-run")


class CannotStart(RuntimeError):
    """The program cannot be executed."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status
        """The exit status that a shell gives: 127 if there is no such program, 126 if it cannot be executed."""


def is_program(name: str) -> bool:
    """Returns true if the launcher starts it: a file, or a command on the PATH."""
    return libc_front.find_program(os.fsencode(name))


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
