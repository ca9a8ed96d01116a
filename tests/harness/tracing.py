"""Stops another process at its next access to a word of memory: by ptrace(2) and a debug register of the processor."""

import contextlib
import ctypes
import os
import platform
import signal
from collections.abc import Iterator

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long

POKEUSER, CONT, DETACH, SEIZE, INTERRUPT = 6, 7, 17, 0x4206, 0x4207
DEBUG_REGISTERS = 848  # in struct user, of 8 bytes each
ADDRESS, CONTROL = 0, 7
FOUR_BYTES_READ_OR_WRITTEN = 0xF0001


def _ask(request: int, process: int, address: int = 0, value: int = 0) -> None:
    if LIBC.ptrace(request, process, address, value) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Watched:
    """A child of this process, from one stop to the next. Used by the thread that made it."""

    def __init__(self, process: int) -> None:
        self.process = process
        _ask(SEIZE, process)
        _ask(INTERRUPT, process)
        self.stopped_by()

    def stopped_by(self) -> int:
        _, status = os.waitpid(self.process, 0)
        assert os.WIFSTOPPED(status), f"the process has ended: {status}"
        return os.WSTOPSIG(status)

    def watch(self, address: int) -> None:
        """From now on it stops behind its next instruction that reads or writes the word."""
        _ask(POKEUSER, self.process, DEBUG_REGISTERS + 8 * ADDRESS, address)
        _ask(POKEUSER, self.process, DEBUG_REGISTERS + 8 * CONTROL, FOUR_BYTES_READ_OR_WRITTEN)
        _ask(CONT, self.process)

    def let_go(self) -> None:
        """It runs on, unwatched."""
        _ask(POKEUSER, self.process, DEBUG_REGISTERS + 8 * CONTROL, 0)
        _ask(DETACH, self.process)


@contextlib.contextmanager
def watched(process: int) -> Iterator[Watched]:
    if platform.machine() != "x86_64":
        pytest.skip("the debug registers of this processor are others")
    try:
        tracee = Watched(process)
    except PermissionError:
        pytest.skip("ptrace(2) is not permitted here")
    yield tracee


def await_access(tracee: Watched) -> None:
    assert tracee.stopped_by() == signal.SIGTRAP
