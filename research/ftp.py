"""Lines of file transfers: x is "SIZE get", "SIZE put" or, for many small files, "SIZE get TIMES"."""

from __future__ import annotations

import filecmp
import json
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.process import RunFailed
from bench.turns import Line, Start, Take
from research.figures import Plan, Sample
from research.series import RING, command, run_program, started

BUFFER = 64 << 10
MEMORY = "/dev/shm"  # the papers' RAM disks


def folder(stack: ExitStack) -> Path:
    where = MEMORY if Path(MEMORY).is_dir() else None
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastsock-papers-", dir=where)))


def sized(path: Path, size: int) -> Path:
    """A file of so many bytes, which do not repeat within a descriptor."""
    if not path.exists():
        block = b"".join(n.to_bytes(4, "big") for n in range(1 << 16))
        with path.open("wb") as file:
            for start in range(0, size, len(block)):
                file.write(block[: size - start])
    return path


def asked(x: str) -> tuple[int, str, int]:
    size, way, *times = x.split()
    return int(size), way, int(times[0]) if times else 1


def figures(seconds: list[float], size: int) -> Sample:
    return {"seconds": median(seconds), "bits_per_second": 8 * size / median(seconds)}


def over(way: str) -> Start:
    """The FTP server and its client, plain or under fastsock."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        server_side, client_side = folder(stack), folder(stack)
        server = started(stack, command(way, "research.ftp_server", server_side))

        def once(x: Any) -> Sample:
            size, direction, times = asked(x)
            there, here = server_side / f"{size}", client_side / f"{size}"
            source, target = (there, here) if direction == "get" else (here, there)
            sized(source, size)
            stats = client_side / "stats.json"
            words = "research.ftp_client", server.port, direction, size, here, "--times", times
            report = run_program(command(way, *words, stats=stats))
            if not filecmp.cmp(source, target, shallow=False):
                raise RunFailed(f"the file arrived changed: {x}")
            target.unlink()
            return {**figures(report["seconds"], size), **moved(way, stats)}

        return once

    return start


def moved(way: str, stats: Path) -> Sample:
    if way != "fastsock":
        return {}
    counted = json.loads(stats.read_text())
    return {"connections_ring": counted["connections_ring"], "connections_tcp": counted["connections_tcp"]}


def local_copy(stack: ExitStack, plan: Plan) -> Take:
    """The same loop of reads and writes from one file into another."""
    here = folder(stack)

    def once(x: Any) -> Sample:
        size, _, times = asked(x)
        source = sized(here / f"{size}", size)
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            with source.open("rb", buffering=0) as read, (here / "copy").open("wb", buffering=0) as write:
                shutil.copyfileobj(read, write, BUFFER)
            seconds.append(time.perf_counter() - start)
        return figures(seconds, size)

    return once


def ftp_lines() -> tuple[Line, ...]:
    return Line(RING, over("fastsock")), Line("kernel TCP", over("plain")), Line("local copy", local_copy)
