"""The suites of socat, node, memcached and perl: Debian's programs run the tests of their sources."""

from __future__ import annotations

import re
import shutil

from .suite import CannotRun, Outcomes, Suite, call


def needs(*programs: str) -> None:
    for name in programs:
        if not shutil.which(name):
            raise CannotRun(f"there is no {name}")


class Socat(Suite):
    source = "socat"
    TESTS = "tcp4"
    """Those that test.sh files under this word."""

    def build(self) -> None:
        needs("socat", "filan", "procan", "ifconfig", "netstat", "ping", "bash")

    def tests(self) -> list[str]:
        blocks = re.findall(r"(?m)^NAME=(\w+)\ncase \"\$TESTS ?\" in\n([^\n]*)", (self.folder / "test.sh").read_text())
        return [name for name, words in blocks if f"*%{self.TESTS}%*" in words]

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        programs = {name.upper(): str(shutil.which(name)) for name in ("socat", "filan", "procan")}
        words = [*below, "bash", "test.sh", "-t", "0.1", *tests]
        said, _ = self.said(words, {**variables, **programs}, 400)
        said = re.sub(r"\x1b\[[0-9;]*m", "", said)
        found = dict(re.findall(r"(?m)^test +\d+ (\w+): .*?\.\.\..*?(OK|FAILED|NO RESULT|not available|failed)", said))
        return {test: found.get(test, "not run") for test in tests}


class EachByItself(Suite):
    """Tests that are files, each run by a program."""

    program: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    seconds = 60.0

    def build(self) -> None:
        needs(self.program[0])

    def tests(self) -> list[str]:
        found = sorted({path for pattern in self.files for path in self.folder.glob(pattern)})
        return [str(path.relative_to(self.folder)) for path in found if path.name not in self.left_out]

    def run(self, tests: list[str], below: list[str], variables: dict[str, str]) -> Outcomes:
        statuses = {test: self.said([*below, *self.program, test], variables, self.seconds)[1] for test in tests}
        return {test: "too long" if status == -9 else f"status {status}" for test, status in statuses.items()}


class Node(EachByItself):
    source = "nodejs"
    program = ("node", "--expose-internals")
    files = ("test/parallel/test-net-*.js",)


class Perl(EachByItself):
    source = "perl"
    program = ("perl", "-I.", "-It")
    files = ("dist/IO/t/io_sock*.t", "dist/IO/t/io_sel.t", "dist/IO/t/io_poll.t", "dist/IO/t/io_multihomed.t",
             "cpan/IO-Socket-IP/t/[0-3]*.t")  # fmt: skip
    left_out = ("31nonblocking-connect-internet.t",)


class Memcached(EachByItself):
    source = "memcached"
    program = ("perl", "-It/lib")
    files = tuple(
        f"t/{name}.t"
        for name in ("cas", "chunked-items", "conn-limits", "flush-all", "incrdecr", "issue_*",
                     "item_size_max", "line-lengths", "malicious-commands", "maxconns", "metaget", "misbehave",
                     "multiversioning", "noreply", "quit", "refhang", "stats-conns", "touch", "udp", "watcher")
    )  # fmt: skip

    def build(self) -> None:
        needs("gcc", "perl")
        if not (self.folder / "memcached-debug").exists():
            call(["./configure", "--quiet", "--disable-coverage"], self.folder)
            call(["make", "-s", "-j2", "memcached-debug", "timedrun"], self.folder)
