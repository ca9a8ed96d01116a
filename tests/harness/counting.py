"""What programs call: counted by a library that is loaded before the C library, or as strace sees it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.processes import ended

COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
static unsigned long counts[64], wakes, sleeps;
static const char *names[64];
#define COUNT(index, name) \\
    long name(long a, long b, long c, long d, long e, long f) { \\
        static long (*real)(long, long, long, long, long, long); \\
        if (!real) real = dlsym(RTLD_NEXT, #name); \\
        names[index] = #name; \\
        __atomic_add_fetch(&counts[index], 1, __ATOMIC_RELAXED); \\
        return (long)(int)real(a, b, c, d, e, f); \\
    }
%s
long syscall(long number, long a, long b, long c, long d, long e, long f) {
    static long (*real)(long, long, long, long, long, long, long);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_futex) __atomic_add_fetch(b == FUTEX_WAKE ? &wakes : &sleeps, 1, __ATOMIC_RELAXED);
    return real(number, a, b, c, d, e, f);
}
unsigned long counted(const char *name) {
    if (name[0] == 'W') return wakes;
    if (name[0] == 'S') return sleeps;
    for (int i = 0; i < 64; i++) {
        const char *a = names[i], *b = name;
        while (a && *a && *a == *b) a++, b++;
        if (a && *a == *b) return counts[i];
    }
    return 0;
}
"""
"""It tells of "Wakes" and "Sleeps" too, which are calls of futex."""


def counter(folder: Path, names: Sequence[str]) -> Path:
    """A library for LD_PRELOAD, whose `counted` tells how often functions of the C library were called."""
    source, library = folder / "counter.c", folder / "counter.so"
    source.write_text(COUNTER % "\n".join(f"COUNT({number}, {name})" for number, name in enumerate(names)))
    subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


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
