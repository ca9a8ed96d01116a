"""Throw-away virtual environments: one that patches every interpreter started in it, one that does not, and one whose
interpreter has the library for programs (interpose/)."""

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsock import config, launch

LINKED = ("fastsock", "attr", "attrs", "structlog", "uvloop", "typing_extensions")
"""What fastsock consists of and needs, where installed: linked one by one, so that nothing else comes along."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment in a temporary directory."""

    python: Path
    told: Path
    """A file of each process that has exited in order, with its `fastsock.stats()`."""

    def ring_connections(self) -> int:
        """Connections that took the ring, counted once at each end that is served."""
        return sum(stats["connections_ring"] for stats in self._stats())

    def reasons(self) -> Counter[str]:
        """Why the others did not, as far as their processes exited in order."""
        total: Counter[str] = Counter()
        for stats in self._stats():
            total.update(stats["fallback_reasons"])
        return total

    def _stats(self) -> Iterator[dict[str, Any]]:
        for file in self.told.glob("*.json"):
            with contextlib.suppress(ValueError):  # killed while it wrote
                yield json.loads(file.read_text())


def _below_libc(folder: Path, python: Path, settings: Mapping[str, object], told: Path) -> Path:
    """A command that starts the interpreter under the library."""
    words = [
        f'LD_PRELOAD="{launch.LIBRARY}"',
        *(f'FASTSOCK_{name.upper()}="{value}"' for name, value in settings.items()),
    ]
    command = folder / "python-below-libc"
    told_of = f'{config.LIBRARY_STATS}="$$:{told}/$$.json"'
    command.write_text(f'#!/bin/sh\nexport {" ".join(words)} {told_of}\nexec "{python}" "$@"\n')
    command.chmod(0o755)
    return command


@contextlib.contextmanager
def throw_away(settings: Mapping[str, object] | None, preloaded: bool = False) -> Iterator[Environment]:
    """An environment of this interpreter that patches with `settings`, or has the library with them; None: one that
    does neither."""
    directory = Path(tempfile.mkdtemp(prefix="fastsock-oracle-"))
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", "--symlinks", directory / "venv"], check=True, timeout=60
        )
        (packages,) = directory.glob("venv/lib/python*/site-packages")
        for name in LINKED:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                source = Path(spec.origin)
                source = source.parent if source.name == "__init__.py" else source
                (packages / source.name).symlink_to(source)
        told = directory / "told"
        told.mkdir()
        python = directory / "venv" / "bin" / "python"
        if preloaded:
            assert settings is not None
            python = _below_libc(directory, python, settings, told)
        elif settings is not None:
            shutil.copy(Path(__file__).with_name("boot.py"), packages / "fastsock_oracle.py")
            asked = {"settings": dict(settings), "directory": str(told)}
            (packages / "fastsock_oracle.json").write_text(json.dumps(asked))
            (packages / "fastsock_oracle.pth").write_text("import fastsock_oracle\n")
        yield Environment(python, told)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
