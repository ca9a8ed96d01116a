"""The one loop of all measurements: lines take turns. Works, curves, programs, the papers' figures and the comparison
with others are lines, and differ in what a turn does.

A line is two processes (or more) that differ from another line's in one thing. The processes of all lines are alive
at once, so that whatever the machine does happens to all, and neighbouring turns are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs

from bench.process import RunFailed

Sample = Any
Take = Callable[[Any], Sample]  # a turn at an x
Start = Callable[[ExitStack, Any], Take]  # starts a line's processes for a plan; they end with the stack
Samples = dict[str, dict[str, list[Sample]]]  # line -> x -> a sample for each run
Tell = Callable[[str], None]


@attrs.frozen
class Line:
    name: str
    start: Start


@attrs.frozen
class Taken:
    samples: Samples
    problems: dict[str, str]  # line -> why it has no figures from then on


def take_turns(
    lines: Sequence[Line], xs: Iterable[Any], plan: Any, runs: int, tell: Tell, needed: bool = False
) -> Taken:
    """Every run starts the processes of all lines afresh; at every x the lines take turns, in an order that changes
    from x to x and from run to run. A line that fails has no figures from then on, and is told as a problem. With
    `needed` a line that fails raises RunFailed or OSError: the others mean nothing without it."""
    samples: Samples = {line.name: {} for line in lines}
    problems: dict[str, str] = {}

    def guarded(line: Line, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except (RunFailed, OSError) as problem:
            if needed:
                raise
            problems[line.name] = f"{type(problem).__name__}: {problem}"
            return None

    for run in range(runs):
        with ExitStack() as stack:
            takes: list[tuple[Line, Take]] = []
            for line in lines:
                tell(f"run {run + 1}/{runs}  starting {line.name}")
                if line.name not in problems and (take := guarded(line, partial(line.start, stack, plan))):
                    takes.append((line, take))
            for number, x in enumerate(xs):
                for line, take in takes if (run + number) % 2 else takes[::-1]:
                    if line.name in problems:
                        continue
                    tell(f"run {run + 1}/{runs}  {x}  {line.name}")
                    if (sample := guarded(line, partial(take, x))) is not None:
                        samples[line.name].setdefault(str(x), []).append(sample)
    return Taken(samples, problems)
