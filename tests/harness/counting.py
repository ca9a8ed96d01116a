"""What programs call, as strace sees it: the core calls the kernel past the C library."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from harness.processes import ended


def traced(source: str, names: str, folder: Path, **variables: str) -> tuple[str, list[list[str]]]:
    """What a program prints, and its calls of these names each time between "BEGIN" and "END", which it writes. Skips
    the test without strace, or where it may not trace."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    (folder / "program.py").write_text(source)
    settings = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
    command = ["strace", "-f", "-o", folder / "calls", "-e", f"trace={names}", *settings]
    done = ended([*command, sys.executable, folder / "program.py"], None)
    if "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    parts = (folder / "calls").read_text().split('"BEGIN"')[1:]
    return done.stdout, [part.split('"END"')[0].splitlines()[1:] for part in parts]
