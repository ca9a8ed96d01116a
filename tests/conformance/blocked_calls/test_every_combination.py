"""Every combination of what the directions hold, calls in progress, and an event: fastsock does what TCP does."""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from .combinations import CALLS, EVENTS, ORACLE, PATHS, Combination, every, reachable, why_unreachable
from .comparison import differences
from .differences import DIFFERENCES, FAULTS, OF_UNIX_STREAMS

QUIET, LOOKS = 0.015, (0.06, 0.15, 0.03, 0.1)
"""Seconds without a change that count as rest: in the first run, and in further looks at what differs. (What comes
later than that comes by a timer, where TCP tells at once.)"""

ALONE = 0.3
"""The same in a last look at what differed in all those, with nothing of the test beside it."""

WORKERS = 5
"""At once; most of their time is waiting."""

SHOWN = 40
"""Findings printed in full."""

Seen = dict[Combination, dict]


def run(streams: str, path: str, combinations: Iterable[Combination], quiet: float) -> tuple[Seen, str]:
    """What a worker saw of each combination, and what it said if it did not come to its end."""
    variables = {**os.environ, "TEST_STREAMS": "unix"} if streams == "unix" else os.environ
    worker = subprocess.run(
        [sys.executable, "-m", "conformance.blocked_calls.worker", path, str(quiet)],
        input="\n".join(map(json.dumps, combinations)),
        cwd=Path(__file__).parents[2],
        env={**variables, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        capture_output=True,
        text=True,
        check=False,  # what it said is shown with the findings
        timeout=300,
    )
    results = map(json.loads, worker.stdout.splitlines())
    return {Combination(*result["combination"]): result for result in results}, worker.stderr


def run_all(streams: str, jobs: Sequence[tuple[str, list[Combination], float]]) -> list[tuple[Seen, str]]:
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(lambda job: run(streams, *job), jobs))


class Comparison:
    """The first run of all paths, and second looks at what differs."""

    def __init__(self, streams: str, combinations: list[Combination]) -> None:
        self.streams = streams
        self.declared = (*DIFFERENCES, *FAULTS, *(OF_UNIX_STREAMS if streams == "unix" else ()))
        self.combinations = combinations
        parts = [[c for c in combinations if c.in_processes is there] for there in (True, False)]
        jobs = [(path, part, QUIET) for path in (*reversed(PATHS), ORACLE, ORACLE) for part in parts]
        self.seen: dict[str, list[Seen]] = collections.defaultdict(list)
        self.said: list[str] = []
        for (path, _, _), (seen, said) in zip(jobs, run_all(streams, jobs), strict=True):
            self.seen[path].append(seen)
            if said:
                self.said.append(f"{path}: {said}")
        self.used: set[str] = set()

    def visited(self, path: str) -> set[Combination]:
        return {c for part in self.seen[path] for c, result in part.items() if not result["problem"]}

    def unaccepted(self, path: str, c: Combination, oracles: list[dict], result: dict | None) -> list[str]:
        """What differs from TCP, and is not declared."""
        if result is None:
            return ["no result: the process died or hung"]
        if result["problem"]:
            return [result["problem"]]
        found = []
        for tcp, here in differences(c, [oracle["seen"] for oracle in oracles], result["seen"]):
            declared = [d for d in self.declared if d.covers(f"path={path} {c}", tcp, here)]
            self.used.update(d.name for d in declared)
            if declared:
                break  # what follows, follows from it
            found.append(f"on TCP {tcp!r}, here {here!r}")
        return found

    def suspects(self, path: str, among: list[Combination], runs: list[Seen], oracles: list[Seen]) -> dict:
        """What differs in all these runs."""
        suspects = {}
        for c in among:
            on_tcp = [run[c] for run in oracles if c in run and not run[c]["problem"]]
            found = [self.unaccepted(path, c, on_tcp, run.get(c)) for run in runs]
            if all(found):
                suspects[c] = found[-1]
        return suspects

    def findings(self) -> list[str]:
        """Differences that are there in the first run and in further looks, which a loaded machine disturbs less."""
        oracles = self.seen[ORACLE]
        suspects = {}
        for path in PATHS:
            merged = {c: result for part in self.seen[path] for c, result in part.items()}
            suspects[path] = self.suspects(path, self.combinations, [merged], oracles)
        paths = [path for path in PATHS if suspects[path]]
        doubtful = {**suspects, ORACLE: sorted({c for among in suspects.values() for c in among})}
        jobs = [(path, list(doubtful[path]), quiet) for quiet in LOOKS for path in (*paths, ORACLE)]
        results = run_all(self.streams, jobs if paths else [])
        looks = collections.defaultdict(list)
        for (path, _, _), (seen, _) in zip(jobs if paths else [], results, strict=True):
            looks[path].append(seen)
        findings = []
        for path in paths:
            courses = [*oracles, *looks[ORACLE]]
            lasting = self.suspects(path, list(suspects[path]), looks[path], courses)
            if lasting:
                (alone, _), (course, _) = (run(self.streams, at, lasting, ALONE) for at in (path, ORACLE))
                lasting = self.suspects(path, list(lasting), [alone], [*courses, course])
            for c, found in lasting.items():
                state = (looks[path][-1].get(c) or {}).get("state", "")
                findings.append(f"path={path} {c}\n    " + "\n    ".join([*found, state]).rstrip())
            if passing := len(suspects[path]) - len(lasting):
                print(f"{path}: {passing} differed once, and then no more")
        for path in paths:  # a state that a loaded machine has missed may have come about in a further look
            self.seen[path].extend(looks[path])
        return findings

    def fail_if(self, findings: list[str]) -> None:
        """Something differs, or a combination did not come about."""
        assert not findings, "\n".join([f"{len(findings)} findings:", *findings[:SHOWN], *self.said])
        for path in (ORACLE, *PATHS):
            missing = [str(c) for c in self.combinations if c not in self.visited(path)]
            assert not missing, f"{path}: not visited: {missing}\n" + "\n".join(self.said)


def table(comparison: Comparison) -> str:
    """How many combinations were visited, by path and call (rows) and event (columns)."""
    lines = ["visited / reachable, by path and call in progress; per event: " + " ".join(EVENTS)]
    for path in (ORACLE, *PATHS):
        visited = comparison.visited(path)
        for call in CALLS:
            row = [c for c in comparison.combinations if c.call == call]
            counts = [sum(c in visited for c in row if c.event == event) for event in EVENTS]
            lines.append(f"{path:7} {call:13} {sum(counts):4}/{len(row):<4} " + " ".join(f"{n:2}" for n in counts))
    reasons = collections.Counter(filter(None, map(why_unreachable, every())))
    return "\n".join([*lines, *(f"not reachable: {count} ({reason})" for reason, count in reasons.items())])


@pytest.mark.timeout(600)
def test_every_combination_ends_as_in_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """On TCP, and with TEST_STREAMS=unix on stream sockets of AF_UNIX, of which the first tier has a part."""
    comparison = Comparison(os.environ.get("TEST_STREAMS", "tcp"), reachable())
    findings = comparison.findings()
    unused = [d.name for d in (*DIFFERENCES, *FAULTS) if d.name not in comparison.used]
    with capsys.disabled():
        print("\n" + table(comparison))
        print(f"declared differences and faults: {len(comparison.used)} seen; findings: {len(findings)}")
    comparison.fail_if(findings)
    assert not unused or comparison.streams != "tcp", f"declared, but not different: {unused}"
