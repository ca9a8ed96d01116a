"""Runs other people's test programs below the library, and fails on any difference from kernel TCP.

    python -m tests.third_party.native [SUITE ...] [--match PATTERN] [--cache FOLDER]

libraries.py has those of libraries, programs.py those of programs and languages. The sources are Debian's, fetched by
`apt-get source` and built once, in FOLDER (default: below the user's cache).
Without `apt-get`, a source list or a network a suite is not run, which is said in one line, and is no difference.
The library moves connections at their first byte. A test that comes out differently is run again, a few times each way:
it may come out in every way that it does on kernel TCP, and in no other.

The exit status is 0 if all is as on kernel TCP, else 1.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from .libraries import Libevent, Libuv, Redis
from .programs import Memcached, Node, Perl, Socat
from .suite import CannotRun, Suite

EAGER = {"FASTSOCK_MOVE_AFTER": "0", "FASTSOCK__MEETING_MS": "20"}
AGAIN = 3
SUITES: dict[str, type[Suite]] = {
    "libuv": Libuv, "libevent": Libevent, "redis": Redis, "socat": Socat, "node": Node, "memcached": Memcached,
    "perl": Perl,
}  # fmt: skip

# ---- comparing -------------------------------------------------------------------------------------------------------


def differences(suite: Suite, tests: list[str], below: list[str]) -> Iterable[str]:
    began = time.monotonic()
    plain = suite.run(tests, [], {})
    found = suite.run(tests, below, EAGER)
    print(f"{suite.source}: {len(tests)} tests, {time.monotonic() - began:.0f} s", flush=True)
    for test in tests:
        ways, seen = {plain.get(test)}, found.get(test)
        for _ in range(AGAIN):
            if seen in ways:
                break
            print(f"  again: {test}: {seen}, on kernel TCP {', '.join(map(str, ways))}", flush=True)
            ways.add(suite.run([test], [], {}).get(test))
            seen = suite.run([test], below, EAGER).get(test) if seen not in ways else seen
        if seen not in ways:
            yield f"{suite.source} {test}: {seen}, on kernel TCP {', '.join(map(str, ways))}"


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.third_party.native", description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--match", default="*", help="only tests whose names match this shell pattern")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--cache", type=Path, default=caches / "fastsock-tests", help="where sources are kept")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    wrong, missing = [], []
    for name in options.suites or SUITES:
        try:
            suite = SUITES[name](options.cache.resolve())
        except (CannotRun, OSError, subprocess.TimeoutExpired) as why:
            missing.append(name)
            print(f"{name} cannot be run here: {why}")
            continue
        tests = [test for test in suite.tests() if fnmatch.fnmatchcase(test, options.match)]
        for difference in differences(suite, tests, [sys.executable, "-m", "fastsock", "run"]):
            wrong.append(difference)
            print(f"DIFFERENT: {difference}", flush=True)
    print(f"{len(wrong)} differences; {', '.join(missing)} not run" if missing else f"{len(wrong)} differences")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
