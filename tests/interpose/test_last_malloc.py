"""The end of a process takes no memory: there may be none, and malloc first gathers all that was freed, which took
each child of a big process a millisecond."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from harness.processes import ROOT, ended

from fastsock import launch


def test_the_end_of_a_process_takes_no_memory(tmp_path: Path) -> None:
    program = tmp_path / "last_malloc"
    words = [os.environ.get("CC", "cc"), ROOT / "tests/interpose/programs/last_malloc.c", "-o", program]
    subprocess.run(words, check=True, timeout=60)
    done = ended(["sh", "-c", f'LD_PRELOAD={launch.LIBRARY} exec "$@"', "sh", program])
    assert (done.stdout, done.stderr) == ("ends\n", "")
