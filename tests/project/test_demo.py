"""`./dev demo` at its smallest size: what it shows, how it fails, and that nothing is left. Not how fast it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.pairs import until
from harness.processes import Server, ended, marked

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # bench is no installed package

from bench import demo  # noqa: E402
from bench.programs.pair import FASTSOCK, PLAIN, Slice  # noqa: E402
from bench.programs.results import Result  # noqa: E402
from bench.programs.rows import FREE  # noqa: E402

SECONDS = 100
"""That a demo may take here, where anything may run beside it."""
SMALLEST = [sys.executable, "-m", "bench.demo", "--slices", "1", "--seconds", "0.05"]
MARK = "DEMO_TEST"

pytestmark = pytest.mark.timeout(SECONDS + 20)


def shown(mark: str, **more: str) -> subprocess.CompletedProcess[str]:
    return ended(SMALLEST, None, **{MARK: mark}, **more)


def test_three_pairs_take_the_ring_and_it_ends_with_what_to_try_next():
    mark = f"whole-{os.getpid()}"
    ended = shown(mark)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("TCP > ring") == 3
    for words in ("http.server and http.client", "asyncio streams", "a stream of", "ratio", "CPU time"):
        assert words in ended.stdout
    for row, operation in demo.ROWS.items():
        assert f"  {row.name:7}a {operation} takes " in ended.stdout
    assert ended.stdout.endswith(demo.NEXT + "\n")
    assert marked(MARK, mark) == []


def test_connections_that_do_not_move_are_told_with_the_reason_and_what_to_do():
    mark = f"disabled-{os.getpid()}"
    ended = shown(mark, FASTSOCK_ENABLED="0")
    assert ended.returncode == 1
    assert ended.stdout.count("no connection took the ring") == 3
    assert "FASTSOCK_ENABLED" in ended.stdout
    assert "fastsock doctor" in ended.stdout
    assert marked(MARK, mark) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_demo_that_is_stopped_leaves_no_process(number):
    mark = f"stopped-{number.name}-{os.getpid()}"
    command = [*SMALLEST[:-1], "30"]  # in its first slice when it is stopped
    with Server(command, **{MARK: mark}) as running:
        running.until(lambda: len(marked(MARK, mark)) >= 5, "the demo, two servers, two clients")
        running.process.send_signal(number)
        assert running.wait() == 128 + number
        # One that was being started when the signal came is ended by the kernel, behind the demo.
        until(lambda: marked(MARK, mark) == [], "nobody is left")


def test_a_pair_that_fails_is_told():
    failed = Result(demo.HTTP, FREE, problem="RunFailed: plain: server ended with status 1")
    assert demo.cells(failed)[-1] == "failed"
    assert "http FAILED: RunFailed: plain: server ended with status 1" in demo.told([failed])


@pytest.mark.parametrize(
    ("left", "verdict"), [(0.9, "most of it is Python's own work, which stays"), (0.2, "much of it was the transport")]
)
def test_where_the_time_goes_is_read_from_both_pairs(left, verdict):
    plain = Slice(1000, 1.0, 0.5, 0.5, system_cpu=0.2)
    fastsock = Slice(1000, 1.0, left / 2, left / 2, system_cpu=left / 10)
    said = demo.where_the_time_goes(Result(demo.RPC, FREE, {PLAIN: [plain], FASTSOCK: [fastsock]}))
    assert "a call takes 1000 us of CPU time, 20% of it in the kernel" in said
    assert f"under fastsock {1000 * left:.0f} us, 10% in the kernel: {verdict}" in said
