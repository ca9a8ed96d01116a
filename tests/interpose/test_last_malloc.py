"""A process that ends asks malloc for nothing: there may be no memory, and malloc first gathers all that was freed."""

from __future__ import annotations

from pathlib import Path

from harness.processes import ROOT, compiled, ended

from fastsock import launch


def test_a_process_that_ends_asks_malloc_for_nothing(tmp_path: Path) -> None:
    program = compiled(ROOT / "tests/interpose/programs/last_malloc.c", tmp_path)
    done = ended(["sh", "-c", f'LD_PRELOAD={launch.LIBRARY} exec "$@"', "sh", program])
    assert (done.stdout, done.stderr) == ("ends\n", "")
