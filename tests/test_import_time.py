"""What `import fastsock` and `patch()` load: every program that is started under fastsock pays for it.

No test here measures a time. What costs time is the module that nobody needs yet."""

import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE = 30
ROOT = Path(__file__).resolve().parent.parent

START = "import fastsock; fastsock.patch(); import sys; print(' '.join(sys.modules))"
NEEDLESS = {
    *("structlog", "logging", "asyncio", "uvloop", "ssl", "json", "argparse", "rich"),
    *("importlib.abc", "importlib.resources", "tempfile", "shutil", "random", "lzma", "bz2"),
    *("fastsock.aio", "fastsock.cli", "fastsock.reporting", "fastsock.tools"),
}


def printed(program: str, *flags: str) -> str:
    ended = subprocess.run(
        [sys.executable, *flags, "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_a_patched_program_has_not_loaded_what_it_does_not_need_yet():
    """Beside what a bare interpreter with its site module has: a .pth file may import anything."""
    before = set(printed("import sys; print(' '.join(sys.modules))").split())
    loaded = set(printed(START).split()) - before
    assert "fastsock.rendezvous" in loaded
    assert sorted(loaded & NEEDLESS) == []


@pytest.mark.parametrize("name", ["concurrent.futures", "json"])
def test_a_module_that_was_waited_for_keeps_its_loader(name):
    """The finder that tells of an import is not derived from `importlib.abc`, and the import system does not mind."""
    program = f"""
import importlib
from importlib import resources
from fastsock.imports import when_imported
told = []
when_imported({name!r}, told.append)
importlib.invalidate_caches()
module = importlib.import_module({name!r})
assert told == [module], told
assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"
assert any(resources.files(module).iterdir())
importlib.reload(module)
"""
    assert printed(program) == ""
