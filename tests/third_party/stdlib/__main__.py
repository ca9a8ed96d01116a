"""Runs CPython's own tests in a patched interpreter and fails on any difference from the same run unpatched.

    python -m tests.third_party.stdlib [--suite NAME ...] [--mode MODE ...] [--eager] [--quick] [--match PATTERN]
                                       [--seconds N]

from the checkout, with the interpreter whose `test` package is wanted and for which fastsock is built, or
`./dev stdlib ...`, which sees to that (`PYTHON=python3.13 VENV=.venv-3.13 ./dev stdlib` for another interpreter).

For each suite and mode there is a throw-away virtual environment, in which a `.pth` file patches every interpreter
before it imports anything else, child processes and those started with -I included. The modes are `normal` (default
settings), `eager` (connections move at their first byte), `eager-nopoll` (the same without polling) and `libc` (eager,
with nothing patched: the interpreter has the library as other programs have, and so have its children).
Suites: `suites.SUITES`.

A test may come out as it does unpatched and in no other way. Where it does not, it is run again by itself, unpatched,
a few times: if it then comes out so too, it is the test that is unsteady, which the report says. Differences that are
accepted stand in `exceptions.txt`. A suite of which nothing ran, as some builds of Python come without it, and one of
loopback connections that shows none on the ring in an eager mode have tested nothing, and fail.

The exit status is 0 if all is as it is without fastsock, else 1.
"""

import argparse
import fnmatch
import sys
from collections.abc import Iterable

from .environment import Environment, throw_away
from .interpreter import TEST_SECONDS, Outcome, Run, run_suite
from .suites import MODES, PRELOADED, SUITES, Suite, exceptions

AGAIN = 5
"""Times that a test which came out differently is run again, unpatched."""


def main() -> int:
    options = arguments()
    differences: set[str] = set()
    seen: set[str] = set()
    not_run: list[str] = []
    failed = False
    print(f"Python {sys.version.split()[0]}")
    with throw_away(None) as plain:
        for suite in options.suites:
            pattern = suite.quick if options.quick and not options.match else options.match or "*"
            reference = run_suite(plain, suite.name, suite.resources, pattern, options.seconds)
            report(suite, "unpatched", reference)
            if not ran(reference):
                not_run.append(suite.name)
                continue
            for mode in options.mode:
                with throw_away(MODES[mode], mode == PRELOADED) as patched:
                    run = run_suite(patched, suite.name, suite.resources, pattern, options.seconds)
                    report(suite, mode, run, patched)
                    if suite.ring and mode != "normal" and not options.match and not patched.ring_connections():
                        print("  FAILED: no connection took the ring")
                        failed = True
                seen |= run.outcomes.keys() & reference.outcomes.keys()
                differences |= compare(plain, suite, reference, run, options.seconds)
    excepted = exceptions()
    for test in sorted(differences - excepted.keys()):
        print(f"DIFFERENT: {test}")
    for test in sorted((excepted.keys() & seen) - differences):
        print(f"NO LONGER DIFFERENT, take it out of exceptions.txt: {test}")
        failed = True
    if options.match and len(not_run) < len(options.suites):
        not_run = []  # no test of theirs has such a name
    for name in not_run:
        print(f"NOT RUN: {name} (this Python may come without it)")
    failed |= bool(differences - excepted.keys()) or bool(not_run)
    print("FAILED" if failed else "as without fastsock")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    """The command line, with `suites` and `mode` resolved."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.third_party.stdlib", description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", nargs="+", action="extend", metavar="NAME", help="names or shell patterns")
    parser.add_argument("--mode", nargs="+", action="extend", choices=MODES)
    parser.add_argument("--eager", action="store_true", help="--mode eager eager-nopoll")
    parser.add_argument("--quick", action="store_true", help="the tests that pytest runs")
    parser.add_argument("--match", metavar="PATTERN", help="only tests whose id matches the shell pattern")
    parser.add_argument("--seconds", type=float, default=TEST_SECONDS, help="deadline of one test")
    options = parser.parse_args()
    every = [mode for mode in MODES if mode != PRELOADED]
    options.mode = options.mode or (["eager", "eager-nopoll"] if options.eager else every)
    wanted = options.suite or ["*"]
    options.suites = [
        suite
        for suite in SUITES.values()
        if any(fnmatch.fnmatchcase(suite.name, name) for name in wanted)
        and (suite.quick or not options.quick)
        and sys.version_info[:2] < suite.until
    ]
    if not options.suites:
        parser.error(f"no suite {' '.join(wanted)}; there are {', '.join(SUITES)}")
    return options


def ran(run: Run) -> bool:
    """Whether a suite is there. (All of its tests may be skipped: on a machine without what they need.)"""
    return any(outcome.what != "absent" for outcome in run.outcomes.values())


def report(suite: Suite, mode: str, run: Run, environment: Environment | None = None) -> None:
    """One line: what ran, and on which path."""
    counts = f"{run.count('ok')} ok, {run.count('skipped')} skipped"
    bad = len(run.outcomes) - run.count("ok", "skipped")
    counts += f", {bad} other" if bad else ""
    if environment is not None:
        tcp = environment.reasons()
        counts += f"; {environment.ring_connections()} ends on the ring, {tcp.total()} not"
        if tcp:
            counts += " (" + ", ".join(f"{reason}: {count}" for reason, count in tcp.most_common(3)) + ")"
    print(f"{suite.name} {mode}: {counts}; {run.seconds:.1f} s", flush=True)


def compare(plain: Environment, suite: Suite, reference: Run, run: Run, seconds: float) -> set[str]:
    """The tests that come out differently from every way they come out unpatched; says how."""
    different = set()
    missing = Outcome("not run")
    for test in sorted(reference.outcomes.keys() | run.outcomes.keys()):
        expected, found = reference.outcomes.get(test, missing), run.outcomes.get(test, missing)
        if expected.what == found.what:
            continue
        if found.what in unpatched(plain, suite, test, seconds):
            print(f"  unsteady without fastsock: {test} ({expected.what}, {found.what})")
            continue
        different.add(test)
        print(f"  {test}: {expected.what} without fastsock, now {found.what}")
        for line in (found.why or expected.why).rstrip().splitlines():
            print(f"    {line}")
    return different


def unpatched(plain: Environment, suite: Suite, test: str, seconds: float) -> Iterable[str]:
    """The ways in which a test comes out without fastsock, one after another."""
    pattern = "".join(f"[{char}]" if char in "*?[" else char for char in test.partition(" ")[0])
    for _ in range(AGAIN):
        again = run_suite(plain, suite.name, suite.resources, pattern, seconds)
        yield again.outcomes.get(test, Outcome("not run")).what


if __name__ == "__main__":
    sys.exit(main())
