"""Chaos for programs in C, under the library: echo servers and clients, redis, nginx and curl.

    python -m tests.soak.native [--seconds N] [--seed N] [--pace SECONDS] [--plain]

`echo.c` has the echo programs. Every byte that comes back is checked. A driver kills programs, stops them for a while
and sends them signals that they handle. An early end, a client that falls silent and a program that ends are findings
unless one of these is the reason. redis and nginx take part where they are installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.processes import ROOT, end_when_told, send_signal

PATIENCE = 40.0
"""Seconds without a word after which a client hangs."""
AROUND = 3.0
"""Seconds before and after a kill in which a connection may end early."""
SERVERS = {"redis-cli": "redis", "curl": "nginx"}
RUN = (sys.executable, "-m", "fastsock", "run")


class Program:
    """A program that is started again when it has been killed. `judge` says what is wrong with a line of it."""

    def __init__(
        self, chaos: Chaos, name: str, words: list[str], judge: Callable[[str], str | None] | None = None
    ) -> None:
        self.chaos, self.name, self.words, self.judge = chaos, name, words, judge
        self.killed = -AROUND
        self.generation = 0
        self.start()

    def start(self) -> None:
        self.generation += 1
        self.heard = time.monotonic()
        self.ready = False  # it has said something: it handles its signals by then
        rng = random.Random(f"{self.chaos.options.seed} {self.name} {self.generation}")
        eager = {"FASTSOCK_MOVE_AFTER": "0", "FASTSOCK__MEETING_MS": "20"} if rng.random() < 0.7 else {}
        words = [word.replace("SEED", str(rng.randrange(1 << 31))) for word in self.words]
        run = () if self.chaos.options.plain else RUN
        with (self.chaos.out / f"stderr-{self.name}.txt").open("a") as log:
            self.process = subprocess.Popen(
                [*run, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.judge else log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT), **eager},
                cwd=self.chaos.out,
                text=True,
                start_new_session=True,
            )
        if self.judge:
            threading.Thread(target=self.listen, args=(self.process, self.judge), daemon=True).start()

    def listen(self, process: subprocess.Popen[str], judge: Callable[[str], str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.heard = time.monotonic()
            self.ready |= process is self.process
            self.chaos.counts[f"{self.name}: {line.split()[0]}"] += 1
            if wrong := judge(line):
                # (A kill is noted before it is done; others that it hurts may be told first.)
                self.chaos.suspects.append((time.monotonic(), self, f"{self.name} pid {process.pid}: {wrong}"))

    def kill(self) -> None:
        self.chaos.kills.append((time.monotonic(), self.name))
        self.killed = time.monotonic()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # and what it has forked

    def look_after(self) -> None:
        if self.process.poll() is not None:
            if time.monotonic() - self.killed > AROUND:
                self.chaos.finding(f"{self.name} pid {self.process.pid} ended with {self.process.returncode}")
            self.start()
        elif self.judge and time.monotonic() - self.heard > PATIENCE:
            self.chaos.finding(f"{self.name} pid {self.process.pid} has said nothing for {PATIENCE:.0f} s")
            self.chaos.picture(self.process.pid)
            self.kill()


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def talked(line: str) -> str | None:
    # (The server has been killed before, and may be stopped while it starts.)
    begins = line.removeprefix("cut ").startswith("Could not connect") or "Failed to connect" in line
    return None if line.startswith("ok ") or begins else line.strip()


class Chaos:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.out = Path(tempfile.mkdtemp(prefix="fastsock-native-chaos-"))
        self.counts: Counter[str] = Counter()
        self.kills: list[tuple[float, str]] = []
        self.suspects: list[tuple[float, Program, str]] = []
        self.findings: list[str] = []
        self.later: list[tuple[float, int]] = []
        number = os.getpid() % 60_000
        self.host = f"127.78.{number // 250 + 1}.{number % 250 + 1}"
        self.programs = list(self.begin())

    def finding(self, text: str) -> None:
        self.findings.append(text)
        print(f"FOUND {len(self.findings)}: {text}", flush=True)

    def picture(self, pid: int) -> None:
        """All threads' stacks of all programs, where gdb is installed."""
        if not shutil.which("gdb"):
            return
        with (self.out / "stacks.txt").open("a") as file:
            print(f"==== {pid}", file=file, flush=True)
            for program in self.programs:
                print(f"---- {program.name}", file=file, flush=True)
                words = ["gdb", "-p", str(program.process.pid), "-batch", "-ex", "thread apply all bt"]
                subprocess.run(words, stdout=file, stderr=subprocess.DEVNULL, timeout=30, check=False)
        subprocess.run(["ss", "-tinemp", f"src {self.host}"], stdout=(self.out / "ss.txt").open("a"), check=False)

    def port(self) -> int:
        with socket.create_server((self.host, 0)) as probe:
            return (
                int(probe.getsockname()[1]) % 10_000 + 20_000
            )  # (not among the numbers that the kernel gives to clients)

    # ---- programs ------------------------------------------------------------------------------------------------

    def begin(self) -> Iterator[Program]:
        echo = self.out / "echo"
        compiler = os.environ.get("CC", "cc")
        source = ROOT / "tests/soak/echo.c"
        subprocess.run([compiler, "-O1", "-g", "-w", str(source), "-pthread", "-o", str(echo)], check=True, timeout=100)
        hows = ("blocking", "polling", "selecting", "edges")
        for index, server in enumerate(("epoll", "threads", "forks")):
            port = str(self.port() + index)
            yield Program(self, server, [str(echo), "server", server, self.host, port])
            for how in (hows[index], hows[(index + 2) % 4], hows[3 - index]):
                words = [str(echo), "client", how, self.host, port, "SEED"]
                yield Program(self, f"{server}-{how}", words, talked)
        if shutil.which("redis-server"):
            yield from self.redis()
        if shutil.which("nginx") and shutil.which("curl"):
            yield from self.nginx()

    def redis(self) -> Iterator[Program]:
        port = str(self.port() + 10)
        words = [
            "redis-server", "--bind", self.host, "--port", port, "--save", "", "--appendonly", "no",
            "--protected-mode", "no",
        ]  # fmt: skip
        yield Program(self, "redis", words)
        client = [sys.executable, "-m", "tests.soak.native", "--be", "redis", self.host, port, "SEED"]
        yield Program(self, "redis-cli", [*client], talked)

    def nginx(self) -> Iterator[Program]:
        port, folder = str(self.port() + 20), self.out / "www"
        folder.mkdir()
        for index, size in enumerate((10, 5000, 300_000, 3_000_000)):
            (folder / str(index)).write_bytes(random.Random(index).randbytes(size))
        (self.out / "nginx.conf").write_text(
            f"daemon off; worker_processes 2; pid {self.out}/nginx.pid; error_log {self.out}/error.log;\n"
            f"{'user root;' if os.geteuid() == 0 else ''}\n"
            f"events {{ worker_connections 256; }}\n"
            f"http {{ access_log off; client_body_temp_path {self.out}/body; proxy_temp_path {self.out}/proxy;\n"
            f"fastcgi_temp_path {self.out}/f; uwsgi_temp_path {self.out}/u; scgi_temp_path {self.out}/s;\n"
            f"server {{ listen {self.host}:{port}; root {folder}; }} }}\n"
        )
        yield Program(self, "nginx", ["nginx", "-c", str(self.out / "nginx.conf")])
        words = [sys.executable, "-m", "tests.soak.native", "--be", "curl", self.host, port, "SEED"]
        yield Program(self, "curl", words, talked)

    # ---- faults ----------------------------------------------------------------------------------------------------

    def strike(self) -> None:
        rng, program = self.rng, self.rng.choice(self.programs)
        pids = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if group_of(pid) == program.process.pid
        ]
        if not pids:
            return
        fault = rng.choices(("kill", "kill one", "stop", "alarm", "child"), (2, 2, 4, 6, 3))[0]
        self.counts[f"fault: {fault}"] += 1
        pid = rng.choice(pids)
        if fault == "kill":
            program.kill()
        elif fault == "kill one":
            self.kills.append((time.monotonic(), program.name))
            if pid == program.process.pid or program.name in ("redis-cli", "curl"):
                program.kill()
            else:
                send_signal(pid, signal.SIGKILL)
        elif fault == "stop":
            send_signal(pid, signal.SIGSTOP)
            self.later.append((time.monotonic() + rng.choice((0.01, 0.2, 1.0, 3.0)), pid))
        elif fault == "alarm" and program.ready and program.name not in SERVERS:
            for _ in range(rng.randrange(1, 50)):
                send_signal(pid, signal.SIGALRM)
                time.sleep(0.001)
        elif fault == "child" and program.name == "forks":
            send_signal(program.process.pid, signal.SIGCHLD)
        elif fault == "child" and program.name == "nginx":
            send_signal(program.process.pid, signal.SIGHUP)  # new workers, and the old ones end when they are done

    def resume(self, everything: bool = False) -> None:
        now = time.monotonic()
        for at, pid in list(self.later):
            if everything or at <= now:
                send_signal(pid, signal.SIGCONT)
                self.later.remove((at, pid))

    def weigh(self, everything: bool = False) -> None:
        """Early ends without a kill around them are findings."""
        now = time.monotonic()
        for suspect in list(self.suspects):
            at, program, what = suspect
            if now - at < AROUND and not everything:
                continue
            self.suspects.remove(suspect)
            names = (program.name, SERVERS.get(program.name) or program.name.partition("-")[0])
            if "wrong" in what or not any(abs(at - kill) < AROUND and name in names for kill, name in self.kills):
                self.finding(what)

    def carry_out(self) -> int:
        print(f"chaos: seed {self.options.seed}, {self.options.seconds:.0f} s, in {self.out}", flush=True)
        until, strike = time.monotonic() + self.options.seconds, time.monotonic() + 2
        for program in self.programs:  # (clients may begin before their servers do)
            self.kills.append((time.monotonic(), program.name))
        try:
            while time.monotonic() < until and len(self.findings) < 10:
                time.sleep(0.1)
                self.resume()
                for program in self.programs:
                    program.look_after()
                self.weigh()
                if time.monotonic() > strike:
                    self.strike()
                    strike = time.monotonic() + self.rng.uniform(0.2, 1.8) * self.options.pace
            self.resume(everything=True)
            self.weigh(everything=True)
        finally:
            for program in self.programs:
                if program.process.poll() is None:
                    os.killpg(program.process.pid, signal.SIGKILL)
                program.process.wait()
        return self.conclude()

    def conclude(self) -> int:
        for program in self.programs:
            if program.judge and not self.counts[f"{program.name}: ok"]:
                self.finding(f"{program.name} has ended nothing well")
        print(f"chaos: {', '.join(f'{name} {count}' for name, count in sorted(self.counts.items()))}")
        print(f"chaos: {len(self.kills) - len(self.programs)} kills, {len(self.findings)} findings")
        if self.findings:
            again = f"python -m tests.soak.native {' '.join(sys.argv[1:])} --seed {self.options.seed}"
            print(f"chaos: see {self.out}; repeat: {again}")
            return 1
        shutil.rmtree(self.out)
        return 0


# ---- clients of other people's servers -------------------------------------------------------------------------


def commands(rng: random.Random) -> tuple[str, list[str]]:
    """Commands for redis-cli, and what it prints."""
    asked, told = [], []
    for number in range(rng.randrange(1, 60)):
        key, value = f"{rng.getrandbits(64)}", f"{rng.getrandbits(64)}" * rng.choice((1, 1, 20, 2000))
        asked += [
            f"set {key} {value}", f"get {key}", f"rpush l{key} {number} {value}", f"lrange l{key} 0 -1",
            f"del {key} l{key}",
        ]  # fmt: skip
        told += ["OK", value, "2", str(number), value, "2"]
    return "\n".join(asked) + "\n", told


def ask_redis(host: str, port: str, rng: random.Random) -> str:
    asked, told = commands(rng)
    words = ["redis-cli", "-h", host, "-p", port]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, check=False)
    got = done.stdout.splitlines()
    if got == told:
        return f"ok {len(asked)}"
    if done.stderr:  # (it connects again by itself, and goes on)
        return f"cut {done.stderr.strip()[:200]}"
    for one, other in zip(got, told, strict=False):
        if one != other:
            return f"wrong {one[:80]} for {other[:80]}"
    return f"cut {len(got)} of {len(told)} lines, status {done.returncode}"


def ask_nginx(host: str, port: str, rng: random.Random) -> str:
    chosen = [rng.randrange(4) for _ in range(rng.randrange(1, 6))]
    words = ["curl", "--silent", "--show-error", "--fail-early", *(f"http://{host}:{port}/{index}" for index in chosen)]
    done = subprocess.run(words, capture_output=True, check=False)
    expected = b"".join(random.Random(index).randbytes((10, 5000, 300_000, 3_000_000)[index]) for index in chosen)
    if done.returncode:
        return f"cut curl ends with {done.returncode}: {done.stderr.decode(errors='replace').strip()[:200]}"
    same = hashlib.sha256(done.stdout).digest() == hashlib.sha256(expected).digest()
    return f"ok {len(expected)}" if same else f"wrong {len(done.stdout)} bytes for {len(expected)}"


def be(what: str, host: str, port: str, seed: str) -> None:
    """A client that goes on until it is killed."""
    rng = random.Random(int(seed))
    ask = {"redis": ask_redis, "curl": ask_nginx}[what]
    while True:
        line = ask(host, port, rng)
        print(line, flush=True)
        if not line.startswith("ok"):
            time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.native", description="Chaos for programs in C.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--pace", type=float, default=0.5, help="seconds between two faults, on average (default 0.5)")
    parser.add_argument("--plain", action="store_true", help="kernel TCP, for comparison: must be clean")
    parser.add_argument("--be", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        be(*options.be)
    end_when_told()
    return Chaos(options).carry_out()


if __name__ == "__main__":
    sys.exit(main())
