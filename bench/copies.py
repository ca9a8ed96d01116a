"""`python -m bench.copies`: copies into the ring and out of it, memcpy's next to the core's own in vectors.

The choice between the two is in core/os/copy.h. In one process, over many alignments of source and destination: the
median of them, and the slowest. And between two processes, one of which copies into memory that the other copies out
of, on processors that share a cache and on such as do not, where this machine has them. Figures are GB/s. Where the
processor has no vectors of 32 bytes, there is memcpy alone. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from fastsock.tools.checks import busy, remark

ROOT = Path(__file__).resolve().parent.parent
LENGTHS = [256, 1024, 2048, 2112, 4096, 8192, 16384, 32768, 65536, 262144, 1048576]
MOST_BETWEEN = 65536
"""Bytes of a message between two processes, at most."""
SECONDS = 300

Figures = dict[str, dict[int, list[float]]]
"""GB/s of each alignment, by kind and by length."""


def build(folder: Path) -> Path:
    program = folder / "copies"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = [ROOT / "bench/copies.c", *sorted((ROOT / "core/os").glob("*.c"))]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fno-builtin-memcpy", f"-I{ROOT / 'core'}", "-pthread"]
    subprocess.run([*compiler, *flags, *sources, "-o", program], check=True, timeout=SECONDS)
    return program


def measured(program: Path, *how: str, lengths: list[int]) -> Figures:
    done = subprocess.run(
        [program, *how, *map(str, lengths)], stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS
    )
    figures: Figures = defaultdict(lambda: defaultdict(list))
    for line in done.stdout.splitlines():
        kind, length, _, _, nanoseconds = line.split()
        figures[kind][int(length)].append(int(length) / float(nanoseconds))
    return figures


def sharing_a_cache() -> dict[int, str]:
    """Of each processor that this process may use: which ones have its last cache, "" if the system does not say."""
    shared = {}
    for processor in sorted(os.sched_getaffinity(0)):
        caches = Path(f"/sys/devices/system/cpu/cpu{processor}/cache")
        lists = sorted(caches.glob("index*/shared_cpu_list"))
        shared[processor] = lists[-1].read_text().strip() if lists else ""
    return shared


def pairs() -> list[tuple[str, int, int]]:
    """The first two processors that share a cache, and the first two that do not."""
    shared, found = sharing_a_cache(), {}
    for one, other in combinations(shared, 2):
        what = "a shared cache" if shared[one] == shared[other] else "no shared cache"
        found.setdefault(what, (one, other))
    return [(f"processors {one} and {other}, {what}", one, other) for what, (one, other) in found.items()]


def drawn(title: str, figures: Figures) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("bytes", justify="right")
    for kind in figures:
        table.add_column(f"{kind}, median", justify="right")
        table.add_column("slowest", justify="right")
    for length in figures["memcpy"]:
        speeds = [figures[kind][length] for kind in figures]
        table.add_row(f"{length:,}", *(f"{show:.1f}" for each in speeds for show in (median(each), min(each))))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.copies", description=__doc__.partition("\n")[0])
    parser.add_argument("lengths", nargs="*", type=int, metavar="BYTES", help="of a copy (default: 256 to 1 MiB)")
    lengths = parser.parse_args().lengths or LENGTHS
    if unfit := [length for length in lengths if not 160 <= length <= LENGTHS[-1]]:
        parser.error(f"a copy has 160 to {LENGTHS[-1]:,} bytes, not {unfit[0]:,}")
    console = Console()
    if said := remark(busy(0.5)):
        print(said, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        console.print(drawn("GB/s in one process", measured(program, "here", lengths=lengths)))
        apart, shorter = pairs(), [length for length in lengths if length <= MOST_BETWEEN]
        for name, one, other in apart if shorter else ():
            console.print(
                drawn(f"GB/s between {name}", measured(program, "across", str(one), str(other), lengths=shorter))
            )
        if not apart:
            console.print("one processor: nothing to measure between two")


if __name__ == "__main__":
    main()
