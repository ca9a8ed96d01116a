"""Random sequences of calls in progress at both ends, and of what happens meanwhile, against a simple truth."""

from __future__ import annotations

import collections
import os
import secrets

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .conversation import Conversation

EXAMPLES = int(os.environ.get("SEQUENCES", "15"))
"""Sequences of each test."""

SHRINK = "SHRINK" in os.environ
"""Whether a failing sequence is made shorter, which takes minutes."""


@pytest.mark.timeout(180 + EXAMPLES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # 3.12 warns of forks with threads; the child runs none
@pytest.mark.parametrize("processes", [False, True], ids=["one process", "two processes"])
@pytest.mark.parametrize("kind", ["kernel", "ring", "midstream"])
def test_any_sequence_of_calls_in_progress_agrees_with_the_model(kind: str, processes: bool) -> None:
    number = int(os.environ.get("SEED", secrets.randbelow(1 << 32)))
    print(f"SEED={number}")
    machine = type(
        "Sequence",
        (Conversation,),
        {"kind": kind, "processes": processes, "used": set(), "visited": collections.Counter()},
    )
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            deadline=None,
            database=None,
            phases=[Phase.generate, *([Phase.shrink] if SHRINK else [])],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print("declared differences seen:", ", ".join(sorted(machine.used)) or "none")
    print("\n".join(f"{count:5} {what}" for what, count in sorted(machine.visited.items())))
