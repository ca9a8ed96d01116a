"""Builds and runs raw.c, the ring without sockets."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from bench.process import RunFailed
from bench.turns import Start, Take
from research.figures import Plan, Sample

SOURCE = Path(__file__).with_name("raw.c")
CORE = SOURCE.parents[1] / "core"
SOURCES = (SOURCE, CORE / "ring/robust_lock.c", *sorted((CORE / "os").glob("*.c")))


@cache
def program() -> Path:
    """The compiled program, in a folder of this user's that the sources name. RunFailed without a compiler."""
    words = os.environ.get("CC", "cc").split()
    if shutil.which(words[0]) is None:
        raise RunFailed(f"there is no compiler {words[0]}: name one in CC")
    text = b"".join(path.read_bytes() for path in (SOURCE, *sorted(CORE.rglob("*.[ch]"))))
    folder = Path(tempfile.gettempdir(), f"fastsock-papers-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / f"raw-{hashlib.sha256(text).hexdigest()[:16]}"
    if not built.exists():
        partial = built.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [*words, "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-pthread", f"-I{CORE}", *map(str, SOURCES),
             "-o", str(partial)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RunFailed(f"raw.c does not compile: {done.stderr.strip().splitlines()[-1]}")
        partial.rename(built)
    return built


def raw(kind: str, key: str, cpus: int = 2) -> Start:
    """A line of the C program: "pingpong", "stream", "direct" or "lent", on two CPUs or on one."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        path = program()

        def once(x: Any) -> Sample:
            done = subprocess.run(
                [str(path), kind, str(x), str(plan.seconds), str(cpus)],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            if done.returncode:
                raise RunFailed(f"raw {kind} ended with {done.returncode}: {done.stderr.strip()}")
            return {key: float(done.stdout)}

        return once

    return start
