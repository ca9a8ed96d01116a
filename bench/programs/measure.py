"""Runs a row: its pairs alive at once and driven in turns, round after round."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path

from bench.process import RunFailed
from bench.programs.pair import AGAIN, FASTSOCK, PLAIN, Pair
from bench.programs.plan import Plan
from bench.programs.results import Result
from bench.programs.rows import Row

Tell = Callable[[str], None]


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
    title = f"{row.name}  {result.placement}  round {number + 1}/{plan.rounds}"
    orders = list(permutations(kinds))
    pairs = {kind: Pair(row, kind, result.placement, plan, place) for kind in kinds}
    with ExitStack() as stack:
        for pair in pairs.values():
            tell(f"{title}  starting, {pair.kind}")
            stack.enter_context(pair)
            pair.start()
        for turn in range(plan.slices + 1):
            tell(f"{title}  slice {turn}/{plan.slices}")
            order = orders[(turn + number) % len(orders)]
            done = {kind: pairs[kind].slice(plan.seconds) for kind in order}
            if turn:  # the first slices warm the processes up
                for kind, one in done.items():
                    result.slices.setdefault(kind, []).append(one)
        if last and plan.calls and tracer is not None:
            tell(f"{title}  counting system calls")
            for kind in (PLAIN, FASTSOCK):
                count(result, pairs[kind], plan, tracer)
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
