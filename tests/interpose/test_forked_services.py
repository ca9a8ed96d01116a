"""What a service's sessions are like is learned by all processes of a server that has one for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("way", "threads"), [("closes", 2), ("copies", 2), ("keeps", 1), ("goes on", 1), ("forks twice", 1)]
)
def test_a_connection_is_handed_over_to_the_child(tmp_path: Path, way: str, threads: int) -> None:
    """The child has it alone as soon as its parent has closed it unused; with another one it is the kernel's."""
    program = compiled(ROOT / "tests/interpose/programs/handed_over.c", tmp_path)
    done = ended(["sh", "-c", f'LD_PRELOAD={launch.LIBRARY} exec "$@"', "sh", program, way])
    assert int(done.stdout) == threads, done
