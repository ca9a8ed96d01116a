"""Runs one suite in one environment, with a deadline for every test."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from .environment import Environment

TEST_SECONDS = 60.0
"""How long one test may take; the slowest of CPython's take 20 s here."""
LAST_WORDS = 3.0
"""Seconds for the tracebacks of a process that is killed."""


@dataclass
class Outcome:
    """What became of one test, and why."""

    what: str
    """"ok", "failed", "error", "skipped", "expected failure", "unexpected success", "absent", "hung" or "died"."""
    why: str = ""


@dataclass
class Run:
    """What became of a suite."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, *what: str) -> int:
        return sum(outcome.what in what for outcome in self.outcomes.values())


def run_suite(
    environment: Environment, module: str, resources: str, pattern: str = "*", seconds: float = TEST_SECONDS
) -> Run:
    """The suite's tests that match a shell pattern (or one of several, apart by spaces), each given `seconds`.

    A test that hangs or ends its interpreter is an outcome with the tracebacks of all threads; the rest goes on in a
    new interpreter. Nothing that a suite starts in its session outlives it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fastsock-oracle-") as work:
        record = Path(work, "record")
        record.touch()
        driver = Path(__file__).with_name("driver.py")
        command = [str(environment.python), str(driver), module, str(record), pattern, resources]
        run = Run()
        while True:
            before = len(record.read_text())
            ended, said = _drive(command, record, work, seconds)
            run.outcomes, running, done = _read(record)
            if done:
                break
            what = "died" if ended else "hung"
            with record.open("a") as file:
                file.write(json.dumps({"test": running or f"test.{module}", "outcome": what, "why": said}) + "\n")
            if running is None or len(record.read_text()) == before:  # between two tests: no going on
                run.outcomes, _, _ = _read(record)
                break
    run.seconds = time.monotonic() - began
    return run


def _read(record: Path) -> tuple[dict[str, Outcome], str | None, bool]:
    """The outcomes, the test that has not ended, and whether the suite has."""
    outcomes: dict[str, Outcome] = {}
    running = None
    for line in record.read_text().splitlines():
        entry = json.loads(line)
        if "start" in entry:
            running = entry["test"]
        elif entry["test"] == "":
            return outcomes, None, True
        else:
            running = None
            outcomes[entry["test"]] = Outcome(entry["outcome"], entry.get("why", ""))
    return outcomes, running, False


def _drive(command: list[str], record: Path, work: str, seconds: float) -> tuple[bool, str]:
    """One interpreter, until it exits or writes down nothing for `seconds`: whether it exited, and the end of what it
    said, with tracebacks."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("FASTSOCK_", "PYTHON"))}
    variables["PYTHONFAULTHANDLER"] = "1"  # for the children too
    with tempfile.TemporaryDirectory(dir=work) as cwd, open(Path(work, "output"), "w+b") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        size, since, ended = 0, time.monotonic(), True
        try:
            while process.poll() is None:
                if (now := record.stat().st_size) != size:
                    size, since = now, time.monotonic()
                elif time.monotonic() - since > seconds:
                    ended = False
                    os.killpg(process.pid, signal.SIGABRT)  # faulthandler prints the tracebacks
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(LAST_WORDS)
                    break
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - 20000))
        said = output.read().decode(errors="replace")
    return ended, f"exit status {process.returncode}\n{said}"
