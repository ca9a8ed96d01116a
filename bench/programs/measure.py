"""Runs a row: its pairs alive at once and driven in turns, round after round."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.process import RunFailed
from bench.programs.pair import AGAIN, FASTSOCK, PLAIN, Pair, Slice
from bench.programs.plan import Plan
from bench.programs.results import Result
from bench.programs.rows import Row
from bench.turns import Line, Take, Tell, take_turns

CALLS = "counting system calls"


def measure(row: Row, placement: str, plan: Plan, directory: Path, tracer: str | None, tell: Tell) -> Result:
    """Measure a row; what fails is told in the result, not raised."""
    result = Result(row, placement)
    missing = [name for name in row.needs if shutil.which(name) is None and find_spec(name) is None]
    if missing:
        result.problem = f"{', '.join(missing)}: not installed"
        return result
    kinds = (PLAIN, FASTSOCK, AGAIN) if plan.null or row.needs_null else (PLAIN, FASTSOCK)
    for number in range(plan.rounds):
        place = directory / f"{row.name}.{placement}.{number}"
        try:
            one_round(result, kinds, number, plan, place, tracer, tell)
        except (RunFailed, OSError) as failure:
            result.problem = f"{type(failure).__name__}: {failure}"
            break
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return result


def one_round(
    result: Result, kinds: tuple[str, ...], number: int, plan: Plan, place: Path, tracer: str | None, tell: Tell
) -> None:
    """Fresh processes, and slices of all pairs by turns; who comes first changes from slice to slice."""
    row, last = result.row, number == plan.rounds - 1
    pairs = {kind: Pair(row, kind, result.placement, plan, place) for kind in kinds}

    def start(kind: str, stack: ExitStack, _: Any) -> Take:
        stack.enter_context(pairs[kind])
        pairs[kind].start()
        return partial(turn, kind)

    def turn(kind: str, x: int | str) -> Slice | None:
        if x != CALLS:
            return pairs[kind].slice(plan.seconds)
        if tracer is not None and kind != AGAIN:
            count(result, pairs[kind], plan, tracer)
        return None

    def say(words: str) -> None:
        tell(f"{row.name}  {result.placement}  round {number + 1}/{plan.rounds}  {words}")

    xs = [*range(plan.slices + 1), *([CALLS] if last and plan.calls else [])]
    lines = [Line(kind, partial(start, kind)) for kind in kinds]
    samples = take_turns(lines, xs, plan, 1, say, needed=True).samples
    for kind in kinds:  # the first slices warm the processes up
        result.slices.setdefault(kind, []).extend(samples[kind][str(x)][0] for x in range(1, plan.slices + 1))
    result.stats = pairs[FASTSOCK].stats()
    if pairs[FASTSOCK].statuses != pairs[PLAIN].statuses:
        result.notes.append(f"exit statuses {pairs[FASTSOCK].statuses}, plain {pairs[PLAIN].statuses}")


def count(result: Result, pair: Pair, plan: Plan, tracer: str) -> None:
    """System calls per operation. Without them, the row still has its ratio."""
    try:
        done, server, client = pair.counted_slice(plan.seconds, tracer)
    except OSError as failure:
        result.notes.append(f"{pair.kind}: system calls not counted: {failure}")
        return
    by_name = {
        end: {name: times / done.operations for name, times in sorted(calls.by_name.items(), key=lambda one: -one[1])}
        for end, calls in (("server", server), ("client", client))
    }
    result.calls[pair.kind] = {
        "server": server.total / done.operations,
        "client": client.total / done.operations,
        "by_name": by_name,
        "by": tracer,
    }
