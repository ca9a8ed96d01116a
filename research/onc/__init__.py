"""A server and a client of ONC RPC, made by rpcgen and linked with libtirpc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
HEADERS = Path("/usr/include/tirpc")
PARTS = {"h": "calls.h", "c": "xdr.c", "m": "svc.c", "l": "clnt.c"}


def missing() -> str:
    """What is not installed; empty if all is."""
    absent = [program for program in ("rpcgen", os.environ.get("CC", "cc")) if not shutil.which(program)]
    absent += [str(HEADERS)] * (not HEADERS.is_dir())
    return f"not installed: {', '.join(absent)}" if absent else ""


def build(folder: Path) -> Path:
    """Returns the program (see program.c)."""
    shutil.copy(HERE / "calls.x", folder)
    for kind, name in PARTS.items():
        with (folder / name).open("w") as file:
            subprocess.run(
                ["rpcgen", "-C", "-N", "-M", f"-{kind}", "calls.x"], cwd=folder, stdout=file, check=True, timeout=60
            )
    sources = [HERE / "program.c", *(folder / name for name in PARTS.values() if name.endswith(".c"))]
    words = [
        os.environ.get("CC", "cc"),
        "-O2",
        f"-I{folder}",
        f"-I{HEADERS}",
        *sources,
        "-o",
        folder / "program",
        "-ltirpc",
    ]
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=110)
    return folder / "program"
