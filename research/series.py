"""Lines made of bench's role processes, and of programs started as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from bench.harness import take, timed
from bench.placement import APART, TOGETHER, placed
from bench.process import DrivenProcess, RunFailed
from bench.turns import Line, Start, Take
from bench.worker_process import RoleProcess, Setup
from research.figures import Plan, Sample

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = (int, float)
START_SECONDS = 20.0

RING, KERNEL, KERNEL_ONE = "fastsock", "kernel TCP, a CPU each", "kernel TCP, one CPU"


def cpus(number: int) -> tuple[int, ...]:
    """The first CPU that this process may use, or the last one for another number than 0."""
    return placed(APART)[bool(number)] or ()


def free(settings: dict[str, Any] | None = None, expect: str | None = "ring") -> tuple[Setup, Setup]:
    """Both ends with fastsock, not confined to a CPU: with one only, it polls for few peers."""
    setup = Setup(fastsock=settings or {}, expect=expect)
    return setup, setup


def apart(expect: str | None = "kernel") -> tuple[Setup, Setup]:
    """Both ends on kernel TCP, with a CPU each: what the papers' hosts had."""
    server, client = (Setup(cpus=it, expect=expect) for it in placed(APART))
    return server, client


def together(expect: str | None = "kernel") -> tuple[Setup, Setup]:
    """Both ends on kernel TCP and on one CPU, which is where the kernel is fastest for two that take turns."""
    server, client = (Setup(cpus=it, expect=expect) for it in placed(TOGETHER))
    return server, client


Orders = Callable[[Any], dict[str, Any]]


def pingpong(size: Any, nodelay: bool = True) -> dict[str, Any]:
    return {"loop": "pingpong", "size": size, "nodelay": nodelay}


def stream(size: Any) -> dict[str, Any]:
    return {"loop": "stream", "size": size, "block": max(32, min(4096, (8 << 20) // size))}


def roles(ends: Callable[[], tuple[Setup, Setup]], *orders: Orders, finish: Callable[[Sample], Sample] = dict) -> Start:
    """A server role and a client role, which carry out the orders of an x one after the other."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        server_setup, client_setup = ends()
        server = stack.enter_context(RoleProcess("server", server_setup))
        client = stack.enter_context(RoleProcess("client", client_setup))
        address = server.hear()["address"]

        def once(x: Any) -> Sample:
            sample: Sample = {}
            for order in orders:
                report = take(server, client, address, timed(order(x), plan.seconds), client_setup.expect)
                sample.update(numbers(report), **{f"server_{k}": v for k, v in numbers(report["server"]).items()})
            return finish(sample)

        return once

    return start


def roles_for(
    ends_of: Callable[[Any], tuple[Setup, Setup]], *orders: Orders, finish: Callable[[Sample], Sample] = dict
) -> Start:
    """As `roles`, where the ends' settings depend on x: fresh processes for each x."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        def once(x: Any) -> Sample:
            with ExitStack() as own:
                return roles(lambda: ends_of(x), *orders, finish=finish)(own, plan)(x)

        return once

    return start


def numbers(report: dict[str, Any]) -> Sample:
    """The numbers of a report, counters of its statistics among them."""
    flat = {key: value for key, value in report.items() if isinstance(value, NUMBERS) and not isinstance(value, bool)}
    for key, value in report.get("stats", {}).items():
        if isinstance(value, NUMBERS):
            flat[f"stats_{key}"] = value
    return flat


def pair(*orders: Orders, expect: str | None = "ring", one_cpu: bool = True, **kw: Any) -> tuple[Line, ...]:
    """fastsock, kernel TCP with a CPU each and, where asked for, kernel TCP on one CPU: the same work."""
    plain = "kernel" if expect else None
    lines = [Line(RING, roles(lambda: free(expect=expect), *orders, **kw))]
    lines.append(Line(KERNEL, roles(lambda: apart(plain), *orders, **kw)))
    if one_cpu:
        lines.append(Line(KERNEL_ONE, roles(lambda: together(plain), *orders, **kw)))
    return tuple(lines)


# --- programs -----------------------------------------------------------------------------------------------


def command(way: str, module_or_file: str, *words: Any, stats: Path | None = None) -> list[str]:
    """A program's command, plain or under fastsock."""
    target = [module_or_file] if module_or_file.endswith(".py") else ["-m", module_or_file]
    run = ["-m", "fastsock", "run", *(["--stats", str(stats)] if stats else [])] if way == "fastsock" else []
    return [sys.executable, *run, *target, *map(str, words)]


CONFINE = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])"


def on(cpu: int | None, words: list[str]) -> list[str]:
    """The command, confined to the CPU of that number (see `cpus`); as it is with None."""
    if cpu is None:
        return words
    return [sys.executable, "-c", CONFINE, str(cpus(cpu)[0]), *words]


def environment(**variables: str) -> dict[str, str]:
    """For programs: the settings of whoever measures must not be theirs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}


def run_program(words: list[str], seconds: float = 120.0, **kw: Any) -> dict[str, Any]:
    """Runs a program that prints one JSON object last. RunFailed if it does not."""
    done = subprocess.run(
        words, cwd=ROOT, env=environment(**kw), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode or not done.stdout.strip():
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise RunFailed(f"{' '.join(words[-6:])} ended with {done.returncode}: {' | '.join(last)}")
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


@attrs.frozen
class Program:
    """A started program that says "listening on HOST:PORT" first."""

    port: int


def driven(stack: ExitStack, words: list[str], **variables: str) -> DrivenProcess:
    """A program that runs until the stack ends."""
    return stack.enter_context(DrivenProcess(" ".join(words[-4:]), words, cwd=ROOT, env=environment(**variables)))


def started(stack: ExitStack, words: list[str], **variables: str) -> Program:
    """A program that serves until the stack ends."""
    line = driven(stack, words, **variables).line(START_SECONDS)
    if not line.startswith("listening on "):
        raise RunFailed(f"{' '.join(words[-4:])} does not listen: {line.strip()}")
    return Program(int(line.rpartition(":")[2]))


def run_together(commands: list[list[str]], seconds: float = 60.0, **variables: str) -> list[dict[str, Any]]:
    """Programs that each say "ready", begin when a line comes in, and then print one JSON object: begun together."""
    with ExitStack() as stack:
        processes = [driven(stack, words, **variables) for words in commands]
        for process in processes:
            if (line := process.line(seconds)) != "ready":
                raise RunFailed(f"{process.kind} is not ready: {line}")
        for process in processes:
            process.tell({})
        return [process.hear(seconds) for process in processes]
