"""The suites of libuv, libevent and redis."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil

from .suite import CannotRun, Outcomes, Suite, call


class Libuv(Suite):
    source = "libuv1"
    LEFT_OUT = ("*getaddrinfo*", "*getnameinfo*", "tty*", "udp_multicast*", "*_fs_*", "fs_*")  # no TCP, or no network
    UNIX = (
        "async", "core", "dl", "fs", "getaddrinfo", "getnameinfo", "loop-watcher", "loop", "pipe", "poll", "process",
        "random-devurandom", "signal", "stream", "tcp", "thread", "tty", "udp", "proctitle", "linux-core", "linux",
        "linux-inotify", "linux-syscalls", "procfs-exepath", "random-getrandom", "random-sysctl-linux", "epoll",
    )  # fmt: skip

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
        "unit/type/list", "unit/type/hash", "unit/pubsub", "unit/multi", "unit/protocol", "unit/keyspace",
        "unit/scripting", "unit/limits", "unit/introspection", "unit/querybuf", "unit/tracking", "unit/obuf-limits",
        "unit/auth", "integration/replication-2", "integration/block-repl", "integration/redis-cli",
        "integration/redis-benchmark",
    )  # fmt: skip

    def build(self) -> None:
        if not shutil.which("tclsh"):
            raise CannotRun("there is no tclsh")
        for name in ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
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
                *below, "sh", "./runtest", "--single", unit, "--clients", "1", "--baseport",
                str(21_000 + os.getpid() % 8000),
            ]  # fmt: skip
            said, status = self.said(words, variables, 240)
            said = re.sub(r"\x1b\[[0-9;]*m", "", said)
            bad = re.findall(r"(?m)^\s*\[err\]: (.+?)(?: in tests/.*)?$|\[(exception|TIMEOUT)\]", said)
            good = len(re.findall(r"\[ok\]:", said))
            outcomes[unit] = f"{good} ok" if status == 0 and good else f"{good} ok, status {status}, {bad[:3]}"
        return outcomes
