"""A program's processes seen from outside: their CPU time, and what they are doing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2  # of a process's clock id, as clock_getcpuclockid(3) makes it
SHOWN = 12  # kinds of threads


def family(root: int) -> list[int]:
    """The process and its descendants, as far as they are there."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for children in PROC.glob(f"{pid}/task/*/children"):
            try:
                todo += map(int, children.read_text().split())
            except OSError:
                pass  # the thread has ended
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU time so far of the processes, their descendants and the children that they have waited for. The latter count
    in clock ticks (usually 10 ms), everything else in nanoseconds."""
    total = 0.0
    for root in roots:
        for pid in family(root):
            try:
                total += time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
                fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[13]) + int(fields[14])) / TICK  # cutime, cstime
            except OSError:
                pass  # it has ended
    return total


def system_seconds(roots: Iterable[int]) -> float:
    """The part of `cpu_seconds` that was spent in the kernel, in clock ticks (usually 10 ms)."""
    ticks = 0
    for root in roots:
        for pid in family(root):
            try:
                fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[12]) + int(fields[14])  # stime, cstime
            except OSError:
                pass  # it has ended
    return ticks / TICK


def doing(root: int) -> str:
    """What the threads of a process and of its descendants are doing, from proc(5): state, where in the kernel, which
    system call by number."""
    return "; ".join(f"{pid} {threads(pid)}" for pid in family(root))


def threads(pid: int) -> str:
    kinds: Counter[str] = Counter()
    for task in PROC.glob(f"{pid}/task/*"):
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            words = [name, rest.split()[0], (task / "wchan").read_text()]
            words.append("call " + ((task / "syscall").read_text().split() or ["?"])[0])
        except OSError:
            continue
        kinds[" ".join(words)] += 1
    shown = [f"{times} x {kind}" if times > 1 else kind for kind, times in kinds.most_common(SHOWN)]
    return "[" + ", ".join(shown) + "]" if shown else "is gone"
