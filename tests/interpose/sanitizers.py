"""The library built with a sanitizer: the cases of conformance.c, and a session of redis and of nginx, below it.

    python -m tests.interpose.sanitizers address|thread [CASE ...]

The sanitizer's runtime is preloaded beside the library, so programs need not be built with it. Any report fails the
run, and so does a case that comes out other than on kernel TCP. redis and nginx take part where they are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastsock import launch

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "gcc")
FLAGS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
RUNTIMES = {"address": ["libasan.so", "libubsan.so"], "thread": ["libtsan.so"]}
AT_ONCE = {"FASTSOCK_MOVE_AFTER": "0", "FASTSOCK__MEETING_MS": "20", "FASTSOCK_UNIX_STREAMS": "1"}
EARLY = {"FASTSOCK_MOVE_AFTER": "3", "FASTSOCK__MEETING_MS": "0"}
UNFIT = {
    "address": {
        "changes": "the sanitizer needs more memory than the case leaves",
        "numbers_left": "the sanitizer needs descriptors",
    },
    "thread": {
        "changes": "the sanitizer needs more memory than the case leaves",
        "numbers_left": "the sanitizer needs descriptors",
        **dict.fromkeys(
            ("filtered", "filters", "sandboxes"), "the sanitizer has a thread whose calls the filter refuses"
        ),
        **dict.fromkeys(
            ("closed", "early_closed", "closed_instances"),
            "the program closes what another thread uses, a race of its own",
        ),
        "forked_waits": "the sanitizer does not see the locks that are taken around a fork (pthread_atfork)",
        **dict.fromkeys(("leaps", "signals"), "the sanitizer puts handlers off until a call returns"),
        "exits": "the sanitizer does not know what a forked child's threads have locked",
    },
}


class Session:
    """A build with a sanitizer, in a folder that goes with it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        words = [str(ROOT / "interpose/compile"), str(folder), "-O1", "-fno-omit-frame-pointer", *FLAGS[kind]]
        subprocess.run(words, check=True, timeout=300, env={**os.environ, "CC": COMPILER, "FASTSOCK_DEBUG": "1"})
        self.program = folder / "conformance"
        sources = [str(path) for path in sorted((ROOT / "tests/interpose").glob("*.c"))]
        subprocess.run([COMPILER, "-O1", "-w", *sources, "-pthread", "-o", str(self.program)], check=True, timeout=110)
        for plugin in "plugin.so", "deep.so":
            words = [COMPILER, "-shared", "-fPIC", str(ROOT / "tests/interpose/relocated/ways_plugin.c")]
            subprocess.run([*words, "-o", str(folder / plugin)], check=True, timeout=60)
        suppressions = ROOT / "tests/sanitizers/thread.supp"
        common = f"log_path={folder}/report exitcode=66"
        # (It would set its handlers by the library's sigaction before it has begun.)
        none = " ".join(f"handle_{name}=0" for name in ("segv", "abort", "sigbus", "sigfpe", "sigill", "sigtrap"))
        preloaded = [*map(self._runtime, RUNTIMES[kind]), str(folder / "libfastsock.so")]
        # ThreadSanitizer sees neither locks nor atomics below its wrappers of calls that wait. And a library behind it
        # starts its threads past it, on stacks without room for its thread-local memory: no connection would move.
        if kind == "thread":
            preloaded.reverse()
        self.variables = {
            **os.environ,
            **AT_ONCE,
            "LD_PRELOAD": ":".join(preloaded),
            "ASAN_OPTIONS": f"{common} detect_leaks=0 allocator_may_return_null=1 handle_segv=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "TSAN_OPTIONS": f"{common} {none} die_after_fork=0 print_suppressions=0 suppressions={suppressions}",
        }

    def _runtime(self, name: str) -> str:
        words = [COMPILER, f"-print-file-name={name}"]
        path = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        if not path.startswith("/"):
            sys.exit(f"{COMPILER} has no {name}: install gcc's sanitizers (libtsan, libasan, libubsan)")
        return path

    def command(self, *words: str, early: bool = False) -> list[str]:
        """``early``: connections are early ones for a while."""
        variables = self.variables | (EARLY if early else {})
        below = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
        # ThreadSanitizer of older compilers does not find its way in a widely randomised address space.
        return ["setarch", "-R", *below] if self.kind == "thread" else below

    def reports(self) -> list[str]:
        said = [path.read_text(errors="replace") for path in sorted(self.folder.glob("report*"))]
        # (A child of clone(2) that ends is on a stack that the sanitizer does not know, and it says that.)
        return [text for text in said if "ignoring requested __asan_handle_no_return" not in text or "ERROR:" in text]


def cases() -> list[str]:
    return re.findall(r"\bX\((\w+)\)", (ROOT / "tests/interpose/conformance.h").read_text())


def run(words: list[str]) -> tuple[str, int]:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=170, check=False)
    return done.stdout, done.returncode


# ---- other people's servers -------------------------------------------------------------------------------------


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def server(words: list[str], at: int) -> Iterator[None]:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", at)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def redis(session: Session) -> str:
    at = port()
    words = ["redis-server", "--port", str(at), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with server(session.command(*words), at):
        asks = ["redis-benchmark", "-p", str(at), "-t", "set,get,lpush,lrange_100", "-n", "2000", "-c", "20", "-q"]
        said, status = run(session.command(*asks))
    return "" if status == 0 and said.count("requests per second") >= 4 else f"status {status}: {said[-500:]}"


def nginx(session: Session) -> str:
    at, folder = port(), session.folder
    (folder / "page").write_bytes(os.urandom(3_000_000))
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/log;\n"
        f"{'user root;' if os.geteuid() == 0 else ''}\nevents {{ worker_connections 64; }}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen 127.0.0.1:{at}; root {folder}; }} }}\n"
    )
    with server(session.command("nginx", "-c", str(folder / "nginx.conf")), at):
        # (curl hangs below AddressSanitizer alone: it has the library as it is installed.)
        words = ["curl", "--silent", "--show-error", "--fail-early", *[f"http://127.0.0.1:{at}/page"] * 8]
        variables = {**session.variables, "LD_PRELOAD": launch.LIBRARY}
        got = subprocess.run(words, capture_output=True, timeout=100, check=False, env=variables)
    same = got.stdout == (folder / "page").read_bytes() * 8
    return "" if got.returncode == 0 and same else f"status {got.returncode}: {got.stderr[-500:]!r}"


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in FLAGS:
        sys.exit("usage: python -m tests.interpose.sanitizers address|thread [CASE ...]")
    kind, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory(prefix="fastsock-sanitized-") as folder:
        session = Session(kind, Path(folder))

        def tell(name: str, wrong: str) -> int:
            reports = session.reports()
            for path in Path(folder).glob("report*"):
                path.unlink()
            print(f"{name}: {'failed' if wrong or reports else 'as without'}", flush=True)
            print(*([wrong] if wrong else []), *reports[:3], sep="\n", end="")
            return int(bool(wrong or reports))

        chosen = sys.argv[2:] or [*cases(), "redis", "nginx"]
        for case in chosen:
            if case in UNFIT[kind]:
                print(f"{case}: left out, {UNFIT[kind][case]}")
            elif case not in ("redis", "nginx"):
                for streams in ("tcp", "unix"):
                    on = ["env", f"TEST_STREAMS={streams}", str(session.program), case]
                    expected = run(on)
                    got = run(session.command(*on, early=case.startswith("early")))
                    wrong = "" if got == expected else f"{got[1]}:\n{got[0]}\nbut without:\n{expected[0]}\n"
                    failed += tell(f"{case} on {streams}", wrong)
            elif shutil.which("redis-benchmark" if case == "redis" else "nginx"):
                failed += tell(case, {"redis": redis, "nginx": nginx}[case](session))
    print(f"{failed} failed" if failed else "no report")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
