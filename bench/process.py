"""Processes seen from outside: started, told, heard with a deadline, measured through /proc, ended."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class RunFailed(Exception):
    """A process ended, answered nothing in time or reported a problem: the run has no figure."""


class DrivenProcess:
    """A process that takes orders on its standard input and answers on its standard output, one JSON object a line; a
    context manager that leaves no process behind. `kind` is what messages call it."""

    def __init__(self, kind: str, command: list[str], **how: Any) -> None:
        """`how`: keyword arguments of `subprocess.Popen`."""
        self.kind = kind
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, **how
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._partial = b""
        self._lines: deque[bytes] = deque()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self.close()

    def no_more_orders(self) -> None:
        """End the process's standard input."""
        self._stdin.close()

    def close(self, seconds: float = 5.0) -> int:
        """Wait for the process, which has been told to end or is killed after so long; returns its status."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdin.close()
        self._stdout.close()
        self._stderr.close()
        return self._process.returncode

    def tell(self, order: dict[str, Any]) -> None:
        """Send one line. RunFailed when the process is gone."""
        try:
            os.write(self._stdin.fileno(), json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            raise self._failed("is gone") from None

    def line(self, seconds: float) -> str:
        """The next line. RunFailed when it ends, or says nothing for `seconds`."""
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
        return self._lines.popleft().decode()

    def hear(self, seconds: float = 20.0) -> dict[str, Any]:
        """The next report. RunFailed as of `line`, and when the report has a problem."""
        report: dict[str, Any] = json.loads(self.line(seconds))
        if "problem" in report:
            raise RunFailed(f"{self.kind}: {report['problem']}")
        return report

    def _failed(self, what: str) -> RunFailed:
        last = self.said().strip().splitlines()[-3:]
        return RunFailed(f"{self.kind} {what}" + (": " + " | ".join(last) if last else ""))

    def said(self) -> str:
        """What the process has written to its standard error so far."""
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode(errors="replace")

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
