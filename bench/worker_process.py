"""A role process as the harness starts it: the program of `bench.worker_main`, driven as any process is."""

from __future__ import annotations

import json
import sys
from typing import Any

import attrs

from bench.process import DrivenProcess
from bench.target import ROOT


@attrs.frozen
class Setup:
    """How the two processes of a run start; the fields of `bench.worker_main`' SETUP."""

    family: str = "tcp"
    cpus: tuple[int, ...] | None = None
    fastsock: dict[str, Any] | None = None
    expect: str | None = None


class RoleProcess(DrivenProcess):
    """One role process: `bench.worker_main`."""

    def __init__(self, kind: str, setup: Setup) -> None:
        role = [sys.executable, "-m", "bench.worker_main", kind, json.dumps(attrs.asdict(setup))]
        super().__init__(kind, role, cwd=ROOT)
