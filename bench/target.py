"""Which fastsock is measured: this checkout's, or the installed one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def import_fastsock() -> ModuleType:
    """Import fastsock. A checkout without a core built in place yields to what is installed."""
    if not any((ROOT / "fastsock" / "_native").glob("*.so")):
        sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    return importlib.import_module("fastsock")
