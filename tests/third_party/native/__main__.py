"""Runs the test programs of libuv, libevent and redis below the library, and fails on any difference from kernel TCP.

    python -m tests.third_party.native [libuv] [libevent] [redis] [--match PATTERN] [--cache FOLDER]

The sources are Debian's, fetched by `apt-get source` and built once, in FOLDER (default: below the user's cache).
Without `apt-get`, a source list or a network a suite is not run, which is said in one line, and is no difference.
The library moves connections at their first byte. A test that comes out differently is run again, a few times each way:
it may come out in every way that it does on kernel TCP, and in no other.

The exit status is 0 if all is as on kernel TCP, else 1.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[3]
EAGER = {"FASTSOCK_MOVE_AFTER": "0", "FASTSOCK__MEETING_MS": "20"}
AGAIN = 3
Outcomes = dict[str, str]


class CannotRun(Exception):
    """Something that is needed is missing."""


def call(words: list[str], folder: Path, seconds: float = 600) -> None:
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise CannotRun(f"{' '.join(words[:6])} failed: {done.stdout[-1500:]}")


# ---- sources -----------------------------------------------------------------------------------------------------


def fetch(name: str, cache: Path) -> Path:
    """The unpacked source package. The system's source lists are used with the sources of what they have."""
    if found := sorted(path for path in cache.glob(f"{name}-*") if path.is_dir()):
        return found[0]
    for tool in ("apt-get", "dpkg-source"):
        if not shutil.which(tool):
            raise CannotRun(f"there is no {tool}")
    lists, parts = cache / "lists", cache / "sources.list.d"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    parts.mkdir(exist_ok=True)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        (parts / path.name).write_text(re.sub(r"(?m)^Types:.*", "Types: deb-src", path.read_text()))
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]:
        if path.exists():
            (parts / path.name).with_suffix(".list").write_text(re.sub(r"(?m)^deb\s", "deb-src ", path.read_text()))
    options = [f"Dir::Etc::sourcelist={os.devnull}", f"Dir::Etc::sourceparts={parts}", f"Dir::State::lists={lists}"]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    call([*apt, "update"], cache)
    call([*apt, "source", name], cache)
    return fetch(name, cache)


# ---- the suites ----------------------------------------------------------------------------------------------------


class Suite:
    """A test program: `tests` names its tests; `run` has some of them run, as `command` begins."""

    source = ""
    at_once = False
    """All tests are run by one command."""

    def __init__(self, cache: Path) -> None:
        self.folder = fetch(self.source, cache)
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def tests(self) -> list[str]:
        raise NotImplementedError

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        raise NotImplementedError

    def said(
        self, words: list[str], variables: dict[str, str], seconds: float, folder: Path | None = None
    ) -> tuple[str, int]:
        """What a command prints, and its status; -9 if it takes too long."""
        process = subprocess.Popen(
            words,
            cwd=folder or self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output = process.communicate()[0]
            return output, -9
        return output, process.returncode


class Libuv(Suite):
    source = "libuv1"
    LEFT_OUT = ("*getaddrinfo*", "*getnameinfo*", "tty*", "udp_multicast*", "*_fs_*", "fs_*")  # no TCP, or no network
    UNIX = (
        "async",
        "core",
        "dl",
        "fs",
        "getaddrinfo",
        "getnameinfo",
        "loop-watcher",
        "loop",
        "pipe",
        "poll",
        "process",
        "random-devurandom",
        "signal",
        "stream",
        "tcp",
        "thread",
        "tty",
        "udp",
        "proctitle",
        "linux-core",
        "linux",
        "linux-inotify",
        "linux-syscalls",
        "procfs-exepath",
        "random-getrandom",
        "random-sysctl-linux",
        "epoll",
    )

    def build(self) -> None:
        self.program = self.folder / "run-tests"
        if self.program.exists():
            return
        unix = [self.folder / "src/unix" / f"{name}.c" for name in self.UNIX]
        sources = [*self.folder.glob("src/*.c"), *(path for path in unix if path.exists())]
        tests = [p for p in self.folder.glob("test/*.c") if "-win" not in p.name and "benchmark" not in p.name]
        flags = ["-O1", "-g", "-w", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-Iinclude", "-Isrc"]
        objects = self.folder / "objects"
        objects.mkdir(exist_ok=True)
        call(["gcc", *flags, "-c", *(str(path) for path in sources), "-I../include", "-I../src"], objects)
        call(["sh", "-c", "ar rc libuv.a *.o"], objects)
        call(
            ["gcc", *flags, *map(str, tests), "objects/libuv.a", "-pthread", "-ldl", "-lrt", "-o", "run-tests"],
            self.folder,
        )

    def tests(self) -> list[str]:
        listed, _ = self.said([str(self.program), "--list"], {"UV_RUN_AS_ROOT": "1"}, 20)
        names = re.findall(r"(?m)^(\w+)", listed)
        return [name for name in names if not any(fnmatch.fnmatch(name, one) for one in self.LEFT_OUT)]

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        outcomes = {}
        for test in tests:
            said, status = self.said([*below, str(self.program), test], {"UV_RUN_AS_ROOT": "1", **variables}, 40)
            outcomes[test] = "skipped" if "# SKIP" in said else "ok" if status == 0 else "failed"
        return outcomes


class Libevent(Suite):
    source = "libevent"
    METHODS = ("epoll", "poll", "select")
    LEFT_OUT = ("dns/*", "*rpc*", "http/bad_request")
    """The last one has a timer of 10 ms, and a thread that is both ends waits for itself for `_MEETING_MS` of EAGER."""

    def build(self) -> None:
        built = self.folder / "built"
        self.program = built / "test/regress"
        if self.program.exists():
            return
        built.mkdir(exist_ok=True)
        call(["../configure", "--quiet", "--disable-openssl", "--disable-shared"], built)
        make = ["make", "-s", "-j2", "AUTOMAKE=:", "AUTOCONF=:", "ACLOCAL=:", "AUTOHEADER=:"]
        call([*make, "include/event2/event-config.h"], built)
        call([*make, "test/regress"], built)

    def tests(self) -> list[str]:
        listed, _ = self.said([str(self.program), "--list-tests"], {}, 20)
        names = re.findall(r"(?m)^\s+(\w+/\S+)", listed)
        wanted = [name for name in names if not any(fnmatch.fnmatch(name, one) for one in self.LEFT_OUT)]
        return [f"{method}: {name}" for method in self.METHODS for name in wanted]

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        outcomes = {}
        for method in self.METHODS:
            names = [test.partition(": ")[2] for test in tests if test.startswith(f"{method}: ")]
            without = {f"EVENT_NO{other.upper()}": "1" for other in self.METHODS if other != method}
            if not names:
                continue
            said, _ = self.said([*below, str(self.program), *names], {**variables, **without}, 300, self.program.parent)
            for name in names:
                word = re.search(
                    rf"(?m)^{re.escape(name)}: .*?(OK|SKIPPED|DISABLED|FAILED)", said.replace("[forking] ", "")
                )
                lost = f"[{name.partition('/')[2]} FAILED]" in said
                outcomes[f"{method}: {name}"] = "FAILED" if lost else word[1] if word else "not run"
        return outcomes


class Redis(Suite):
    source = "redis"
    UNITS = (
        "unit/type/list",
        "unit/type/hash",
        "unit/pubsub",
        "unit/multi",
        "unit/protocol",
        "unit/keyspace",
        "unit/scripting",
        "unit/limits",
        "unit/introspection",
        "unit/querybuf",
        "unit/tracking",
        "unit/obuf-limits",
        "unit/auth",
        "integration/replication-2",
        "integration/block-repl",
        "integration/redis-cli",
        "integration/redis-benchmark",
    )

    def build(self) -> None:
        if not shutil.which("tclsh"):
            raise CannotRun("there is no tclsh")
        for name in (
            "redis-server",
            "redis-cli",
            "redis-benchmark",
            "redis-check-aof",
            "redis-check-rdb",
        ):
            if not (found := shutil.which(name)):
                raise CannotRun(f"there is no {name}")
            if not (self.folder / "src" / name).exists():
                (self.folder / "src" / name).symlink_to(found)
        if not (self.folder / "src/redis-sentinel").exists():  # (the same program by another name)
            (self.folder / "src/redis-sentinel").symlink_to(str(shutil.which("redis-server")))

    def tests(self) -> list[str]:
        return self.UNITS

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        outcomes = {}
        for unit in tests:
            words = [
                *below,
                "sh",
                "./runtest",
                "--single",
                unit,
                "--clients",
                "1",
                "--baseport",
                str(21_000 + os.getpid() % 8000),
            ]
            said, status = self.said(words, variables, 240)
            said = re.sub(r"\x1b\[[0-9;]*m", "", said)
            bad = re.findall(r"(?m)^\s*\[err\]: (.+?)(?: in tests/.*)?$|\[(exception|TIMEOUT)\]", said)
            good = len(re.findall(r"\[ok\]:", said))
            outcomes[unit] = f"{good} ok" if status == 0 and good else f"{good} ok, status {status}, {bad[:3]}"
        return outcomes


SUITES: dict[str, type[Suite]] = {"libuv": Libuv, "libevent": Libevent, "redis": Redis}

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
