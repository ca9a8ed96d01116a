"""Runs the lines of a figure alternately, and keeps what each turn gave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import Any

import attrs

from bench.process import RunFailed
from research.figures import Figure, Line, Plan, Samples, Take

Tell = Callable[[str], None]


@attrs.frozen
class Measured:
    figure: Figure
    plan: Plan
    samples: Samples
    problems: dict[str, str]  # line -> why it has no figures
    seconds: float  # that measuring took


def measure(figure: Figure, plan: Plan, tell: Tell) -> Measured:
    """Every run starts the processes of all lines afresh; at every x the lines take turns, in an order that changes
    from run to run. A line that fails has no figures from then on, and is told as a problem."""
    most = (figure.quick_runs if plan.size == "quick" else None) or figure.runs or plan.runs
    plan = attrs.evolve(plan, runs=min(plan.runs, most))
    if figure.seconds is not None and plan.size != "least":
        plan = attrs.evolve(plan, seconds=max(plan.seconds, figure.seconds))
    begun = monotonic()
    samples: Samples = {line.name: {} for line in figure.lines}
    problems: dict[str, str] = {}
    for run in range(plan.runs):
        with ExitStack() as stack:
            takes: list[tuple[Line, Take]] = []
            for line in figure.lines:
                if line.name not in problems and (take := guarded(line, partial(line.start, stack, plan), problems)):
                    takes.append((line, take))
            for x in figure.xs[plan.size]:
                for line, take in takes if run % 2 else takes[::-1]:
                    if line.name in problems:
                        continue
                    tell(f"{figure.full_name}  run {run + 1}/{plan.runs}  {figure.xlabel} {x}  {line.name}")
                    sample = guarded(line, partial(take, x), problems)
                    if sample is not None:
                        samples[line.name].setdefault(str(x), []).append(sample)
    return Measured(figure, plan, samples, problems, monotonic() - begun)


def guarded(line: Line, act: Callable[[], Any], problems: dict[str, str]) -> Any:
    try:
        return act()
    except (RunFailed, OSError) as problem:
        problems[line.name] = f"{type(problem).__name__}: {problem}"
        return None
