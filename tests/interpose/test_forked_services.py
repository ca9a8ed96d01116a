"""What a service's sessions are like is learned by all processes of a server that has one for each of them."""

from __future__ import annotations

from pathlib import Path

from harness.processes import ROOT, compiled, ended

from fastsock import launch

RUNS = 8
"""In half of them, by the ports, the server is the end that waits for the other one, which takes a thread."""


def test_forked_children_learn_from_each_other_s_sessions(tmp_path: Path) -> None:
    program = compiled(ROOT / "tests/interpose/programs/forked_services.c", tmp_path)
    for _ in range(RUNS):
        done = ended(["sh", "-c", f'LD_PRELOAD={launch.LIBRARY} exec "$@"', "sh", program])
        threads = [int(line) for line in done.stdout.split()]
        assert len(threads) == 24, done
        assert threads[-12:] == [1] * 12, threads
