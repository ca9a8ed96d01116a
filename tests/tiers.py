"""The two tiers of tests. The second is this table; the first, `./dev test`, is every test that it does not name.

The first tier says in minutes whether a change holds, wherever it runs. The second (`./dev verify`) has what takes
longer, needs other people's programs, or searches: each part is a command and some test files.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

NATIVE = ("core/*", "fastsock/_native/*", "interpose/*", "setup.py")
PRODUCT = (*NATIVE, "fastsock/*", "pyproject.toml")
FTP_AND_RPC = ("vsftpd:/usr/sbin/vsftpd", "rpcsvc-proto:/usr/bin/rpcgen", "libtirpc-dev:/usr/include/tirpc/rpc/rpc.h")
STDLIB = ("python", "-m", "tests.third_party.stdlib")


@dataclass(frozen=True)
class Part:
    """A part of the second tier."""

    what: str
    """What it is for, in a line."""
    files: tuple[str, ...]
    """Which files of the project can change what it finds, as shell patterns; its own tests can in any case."""
    runs: tuple[str, ...] = ()
    """A command, in the checkout."""
    tests: tuple[str, ...] = ()
    """Folders and files of tests, which pytest runs here and not in the first tier."""
    tools: tuple[str, ...] = ()
    """What `tools` of ./dev is to install."""
    seconds: int = 60
    """About how long it takes alone on two CPUs: the longest parts begin first."""

    def command(self) -> list[str]:
        if self.runs:
            return [sys.executable if word == "python" else word for word in self.runs]
        return [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "--dist", "loadfile", *self.tests]


PARTS = {
    "models": Part(
        "the models of the protocols, all states, with controls that have to fail",
        ("models/*", "core/*"),
        runs=("models/run",),
        tools=("spin", "g++", "relacy-dev:/usr/include/relacy/relacy.hpp"),
        seconds=180,
    ),
    "native": Part(
        "the tests in C under ThreadSanitizer and AddressSanitizer",
        ("core/*", "tests/native/*", "tests/sanitizers/*"),
        runs=("tests/native/run-sanitizers",),
        seconds=150,
    ),
    "thread": Part(
        "tests of Python on modules built with ThreadSanitizer",
        (*PRODUCT, "tests/sanitizers/*"),
        runs=("tests/sanitizers/run", "thread", "--quick"),
        seconds=180,
    ),
    "address": Part(
        "tests of Python on modules built with AddressSanitizer",
        (*PRODUCT, "tests/sanitizers/*"),
        runs=("tests/sanitizers/run", "address", "--quick"),
        seconds=180,
    ),
    "library-address": Part(
        "the library for programs under AddressSanitizer, with cases in C, redis and nginx",
        (*NATIVE, "tests/interpose/*", "tests/sanitizers/*"),
        runs=("python", "-m", "tests.interpose.sanitizers", "address"),
        tools=("redis-server", "nginx", "curl"),
        seconds=220,
    ),
    "library-thread": Part(
        "the library for programs under ThreadSanitizer, with cases in C, redis and nginx",
        (*NATIVE, "tests/interpose/*", "tests/sanitizers/*"),
        runs=("python", "-m", "tests.interpose.sanitizers", "thread"),
        tools=("redis-server", "nginx", "curl"),
        seconds=280,
    ),
    "suites-in-c": Part(
        "the test programs of libuv, libevent and redis, plain against below the library",
        (*PRODUCT, "tests/third_party/native/*"),
        runs=("python", "-m", "tests.third_party.native", "libuv", "libevent", "redis"),
        tools=("redis-server", "tcl:/usr/bin/tclsh"),
        seconds=500,
    ),
    "suites-of-programs": Part(
        "the suites of socat, node, memcached and perl that are about sockets, plain against below the library",
        (*PRODUCT, "tests/third_party/native/*"),
        runs=("python", "-m", "tests.third_party.native", "socat", "node", "memcached", "perl"),
        tools=(
            "socat", "net-tools:/usr/bin/netstat", "iputils-ping:/usr/bin/ping", "nodejs:/usr/bin/node",
            "libevent-dev:/usr/include/event.h", "perl",
        ),
        seconds=900,
    ),
    "fuzz": Part(
        "whatever a peer can say, from a seed",
        (*PRODUCT, "tests/hostile/fuzz/*"),
        runs=("tests/hostile/fuzz/run", "--seconds", "120"),
        seconds=160,
    ),
    "fuzzer": Part("the ring's fuzzer finds seeded faults", ("core/*",), tests=("tests/hostile/fuzz",)),
    "failures": Part(
        "each place of the core that asks the system fails once",
        ("core/*", "tests/native/*"),
        tests=("tests/native/test_syscall_failures.py",),
        seconds=100,
    ),
    "arm64": Part(
        "the native part compiled for arm64, and run under qemu",
        (*NATIVE, "tests/native/*", "tests/hostile/fuzz/*"),
        runs=("tests/native/run-arm64", "3"),
        tools=(
            "gcc-aarch64-linux-gnu:/usr/bin/aarch64-linux-gnu-gcc",
            "libc6-dev-arm64-cross:/usr/aarch64-linux-gnu/include/stdio.h",
            "qemu-user:/usr/bin/qemu-aarch64",
        ),
        seconds=120,
    ),
    "stdlib": Part(
        "CPython's own suites whole, plain against patched",
        (*PRODUCT, "tests/third_party/stdlib/*"),
        runs=(*STDLIB, "--suite", "test_[b-l]*", "test_[n-z]*", "test_asyncore", "--mode", "normal", "eager"),
        seconds=600,
    ),
    "asyncio": Part(
        "CPython's asyncio suite whole, plain against patched",
        (*PRODUCT, "tests/third_party/stdlib/*"),
        runs=(*STDLIB, "--suite", "test_asyncio", "--mode", "eager"),
        seconds=600,
    ),
    "processes": Part(
        "CPython's multiprocessing suites whole, plain against patched",
        (*PRODUCT, "tests/third_party/stdlib/*"),
        runs=(*STDLIB, "--suite", "test_multiprocessing*", "--mode", "eager"),
        seconds=500,
    ),
    "libc": Part(
        "CPython's own suites whole, plain against unpatched below the C library",
        (*PRODUCT, "tests/third_party/stdlib/*"),
        runs=(*STDLIB, "--suite", "test_[b-l]*", "test_[n-z]*", "test_asyncore", "--mode", "libc"),
        seconds=600,
    ),
    "calls": Part(
        "calls that something else comes between: every combination, any sequence, every reason to stop early",
        PRODUCT,
        tests=("tests/conformance/blocked_calls", "tests/conformance/blocking/test_partial_calls.py"),
        seconds=400,
    ),
    "crowds": Part(
        "many processes, many connections, and processes that are stopped or killed at each step",
        (*PRODUCT, "tests/harness/scale.py"),
        tests=(
            "tests/scale/test_many_connections.py",
            "tests/scale/test_beside_hostile.py",
            "tests/scale/test_holders.py",
            "tests/scale/test_short_sessions.py",
            "tests/scale/test_stopped_processes.py",
        ),
        seconds=200,
    ),
    "chaos": Part(
        "ordinary programs whose processes are killed, stopped and starved, from a seed",
        (*PRODUCT, "tests/soak/*"),
        runs=("python", "-m", "tests.soak", "--seconds", "300"),
        seconds=310,
    ),
    "chaos-in-c": Part(
        "echo programs in C, redis, nginx and curl below the library, killed, stopped and interrupted, from a seed",
        (*PRODUCT, "tests/soak/*"),
        runs=("python", "-m", "tests.soak.native", "--seconds", "120"),
        tools=("redis-server", "nginx", "curl"),
        seconds=130,
    ),
    "wheels": Part(
        "a wheel, tried in an empty environment",
        (*PRODUCT, "MANIFEST.in", "tests/wheels/*"),
        runs=("tests/wheels/run", "--twice"),
        seconds=120,
    ),
    "oldest": Part(
        "the library compiled and linked for glibc 2.28, on x86-64 and arm64",
        (*NATIVE, "tests/wheels/oldest"),
        runs=("tests/wheels/oldest",),
        seconds=20,
    ),
    "papers": Part(
        "the papers' figures at their smallest sizes", ("research/*", *PRODUCT), tests=("tests/papers",),
        tools=("curl", "nginx", "wrk", *FTP_AND_RPC), seconds=180,
    ),
    "programs": Part(
        "recipes, and other people's servers, clients and frameworks",
        (*PRODUCT, "docs/recipes.md"),
        tests=("tests/third_party/programs", "tests/project/test_recipes.py", "tests/project/test_snippets.py"),
        tools=(
            "curl", "redis-server", "memcached", "libmemcached-tools:/usr/bin/memcslap",
            "postgresql:/usr/bin/pgbench", "lftp", "nginx:/usr/sbin/nginx", "haproxy:/usr/sbin/haproxy", "wget",
            "dbus:/usr/bin/dbus-daemon", "xvfb:/usr/bin/Xvfb", "x11-utils:/usr/bin/xdpyinfo",
            "openssh-client:/usr/bin/ssh-agent", "gpg", "gpg-agent", "tmux", "mariadb-server:/usr/sbin/mariadbd",
            *FTP_AND_RPC,
        ),
        seconds=550,
    ),
    "runtimes": Part(
        "Java, Node, Erlang, Ruby, PHP, Perl and other people's servers: the same on every path, and at rest",
        PRODUCT,
        tests=("tests/third_party/runtimes",),
        tools=(
            "default-jdk-headless:/usr/bin/javac", "nodejs:/usr/bin/node", "erlang-base:/usr/bin/erl", "ruby",
            "puma", "php-fpm:/usr/sbin/php-fpm8.2", "perl", "apache2:/usr/sbin/apache2", "nginx:/usr/sbin/nginx",
            "haproxy:/usr/sbin/haproxy", "mariadb-server:/usr/sbin/mariadbd", "mosquitto:/usr/sbin/mosquitto",
            "mosquitto-clients:/usr/bin/mosquitto_pub", "rsync", "iperf3",
        ),
        seconds=400,
    ),
    "benches": Part(
        "the benchmarks run, and tell what they should",
        ("bench/*", *PRODUCT),
        tests=(
            "tests/project/test_demo.py",
            "tests/project/test_instructions.py",
            "tests/project/test_figures_command.py",
            "tests/project/test_program_bench.py",
        ),
        tools=("valgrind", "redis-server", "memcached", "nginx", "postgresql:/usr/bin/psql"),
        seconds=150,
    ),
}  # fmt: skip

SECOND_TIER = tuple(path for part in PARTS.values() for path in part.tests)
