"""Role processes seen from outside: started, told, heard with a deadline, measured through /proc, ended."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parent.parent


class RunFailed(Exception):
    """A role ended, answered nothing in time or reported a problem: the run has no figure."""


@attrs.frozen
class Setup:
    """How the two processes of a run start; the fields of `bench.roles`' SETUP."""

    family: str = "tcp"
    cpus: tuple[int, ...] | None = None
    fastsock: dict[str, Any] | None = None
    expect: str | None = None


class RoleProcess:
    """One role process; a context manager that leaves no process behind."""

    def __init__(self, kind: str, setup: Setup) -> None:
        self.kind = kind
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.roles", kind, json.dumps(attrs.asdict(setup))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._partial = b""
        self._lines: deque[bytes] = deque()

    def __enter__(self) -> RoleProcess:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdin.close()
        self._stdout.close()
        self._stderr.close()

    def tell(self, order: dict[str, Any]) -> None:
        """Send one line. RunFailed when the role is gone."""
        try:
            os.write(self._stdin.fileno(), json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            raise self._failed("is gone") from None

    def hear(self, seconds: float = 20.0) -> dict[str, Any]:
        """The role's next report. RunFailed when it has a problem, ends, or says nothing for `seconds`."""
        deadline = monotonic() + seconds
        fd = self._stdout.fileno()
        while not self._lines:
            if not select.select([fd], [], [], max(0.0, deadline - monotonic()))[0]:
                raise self._failed(f"said nothing for {seconds:g} s")
            data = os.read(fd, 1 << 16)
            if not data:
                raise self._failed(f"ended with status {self._process.wait(5)}")
            *whole, self._partial = (self._partial + data).split(b"\n")
            self._lines.extend(whole)
        report: dict[str, Any] = json.loads(self._lines.popleft())
        if "problem" in report:
            raise RunFailed(f"{self.kind}: {report['problem']}")
        return report

    def _failed(self, what: str) -> RunFailed:
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-3:]
        return RunFailed(f"{self.kind} {what}" + (": " + " | ".join(last) if last else ""))

    def resident_kib(self) -> dict[str, int]:
        """Resident (Rss) and proportional (Pss) memory in KiB, from proc(5) smaps_rollup."""
        text = self._proc("smaps_rollup").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
        return {name: int(fields[name].split()[0]) for name in ("Rss", "Pss")}

    def last_cpu(self) -> int:
        """The CPU the process ran on last, from proc(5) stat."""
        return int(self._stat()[36])

    def cpu_ticks(self) -> int:
        """User and system time so far in clock ticks (usually 10 ms), from proc(5) stat."""
        return int(self._stat()[11]) + int(self._stat()[12])

    def cpu_nanoseconds(self) -> int:
        """Time on a CPU so far of all threads in nanoseconds, from the scheduler's own count."""
        return sum(int(path.read_text().split()[0]) for path in self._proc("task").glob("*/schedstat"))

    def _stat(self) -> list[str]:
        """The fields of proc(5) stat from the third, the state, on."""
        return self._proc("stat").read_text().rpartition(")")[2].split()

    def _proc(self, name: str) -> Path:
        return Path("/proc", str(self._process.pid), name)
