"""Runs the lines of a figure alternately, and keeps what each turn gave."""

from __future__ import annotations

from time import monotonic

import attrs

from bench.turns import Samples, Tell, take_turns
from research.figures import Figure, Plan


@attrs.frozen
class Measured:
    figure: Figure
    plan: Plan
    samples: Samples
    problems: dict[str, str]  # line -> why it has no figures
    seconds: float  # that measuring took


def measure(figure: Figure, plan: Plan, tell: Tell) -> Measured:
    """How many runs and how long: as the plan has it, or as the figure needs it."""
    most = (figure.quick_runs if plan.size == "quick" else None) or figure.runs or plan.runs
    plan = attrs.evolve(plan, runs=min(plan.runs, most))
    if figure.seconds is not None and plan.size != "least":
        plan = attrs.evolve(plan, seconds=max(plan.seconds, figure.seconds))
    begun = monotonic()
    taken = take_turns(
        figure.lines, figure.xs[plan.size], plan, plan.runs, lambda word: tell(f"{figure.full_name}  {word}")
    )
    return Measured(figure, plan, taken.samples, taken.problems, monotonic() - begun)
