"""Runs the pairs and the curves, and refuses every run that was not what it should be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from time import sleep
from typing import Any

from bench.process import RunFailed
from bench.results import Curves, Pair, Result, Sample
from bench.worker_process import RoleProcess, Setup
from bench.workloads import CURVE_PATHS, CURVE_READINGS, CURVE_SIZES, Plan, Work, pingpong, stream

Tell = Callable[[str], None]

WARM_SHARE = 0.2  # of the timed seconds, run before them and not timed
MOVED_SHARE = 0.5  # of connections that must be on the ring: one that closes early may not have got there
QUIET_SECONDS = 0.1  # between the last byte and the reading of an idle process


def measure(works: Iterable[Work], plan: Plan, tell: Tell) -> list[Result]:
    """Measure works one after the other; one that fails is an invalid result, not an exception."""
    taken: dict[str, tuple[list[Pair], str | None]] = {}
    results = []
    for work in works:
        if work.samples_key not in taken:
            pairs: list[Pair] = []
            problem = None
            try:
                for run in range(plan.runs):
                    tell(f"{work.name}  run {run + 1}/{plan.runs}")
                    pairs += MEASURES[work.measured_by](work, plan, run)
            except RunFailed as failure:
                problem = str(failure)
            taken[work.samples_key] = pairs, problem
        results.append(Result(work, *taken[work.samples_key]))
    return results


# --- what must hold -----------------------------------------------------------------------------------------


def take(server: RoleProcess, client: RoleProcess, address: Any, order: dict[str, Any], expect: str | None) -> Sample:
    """One sample. RunFailed when a role fails or the connection was not where it has to be."""
    client.tell({**order, "address": address})
    try:
        sample = client.hear()
    except RunFailed as failure:
        raise RunFailed(f"{failure}; {last_words(server)}") from None
    sample["cpus"] = [server.last_cpu(), client.last_cpu()]
    sample["server"] = server.hear()
    if "cpu_seconds" in sample:
        ends = ((sample, sample["count"]), (sample["server"], sample["server"]["messages"]))
        sample["cpu_per_message"] = sum(end["cpu_seconds"] / messages for end, messages in ends)
    check(sample, expect)
    return sample


def last_words(server: RoleProcess) -> str:
    try:
        report = server.hear(1.0)
        return f"server's end on {report['path']}: {report['reason']}"
    except RunFailed as failure:
        return str(failure)


def check(sample: Sample, expect: str | None) -> None:
    """RunFailed when a connection of the sample was not on the path it was meant to measure."""
    if expect is None:
        return
    server = sample["server"]
    if sample["path"] != expect:
        raise RunFailed(f"the client's end was on {sample['path']}, not {expect}: {sample['reason']}")
    if expect == "ring" and server["path"] != "ring":
        raise RunFailed(f"the server's end was on {server['path']}, not ring: {server['reason']}")
    for timed_bytes, ring_bytes in zip(sample.get("payload_bytes", ()), sample.get("ring_bytes", ()), strict=True):
        if expect == "ring" and ring_bytes < timed_bytes:
            raise RunFailed(f"only {ring_bytes} of {timed_bytes} bytes went over the ring: {sample['reason']}")
        if expect != "ring" and ring_bytes:
            raise RunFailed(f"{ring_bytes} bytes went over a ring, none should")
    if expect == "ring" and sample.get("moved", 1) < MOVED_SHARE * sample.get("checked", 1):
        raise RunFailed(f"only {sample['moved']} of {sample['checked']} connections moved: {sample['reason']}")


# --- pairs --------------------------------------------------------------------------------------------------


Ends = tuple[Setup, Setup]  # server, client


def setups(work: Work) -> tuple[Ends, Ends]:
    """How the ends of a work start on kernel TCP, and how on fastsock."""
    allowed = sorted(os.sched_getaffinity(0))
    first, last = (allowed[0],), (allowed[-1],)
    confined = {"any": (None, None), "one": (last, last), "two": (first, last), "server": (first, None)}

    def ends(fastsock: dict[str, Any] | None, expect: str | None) -> Ends:
        server, client = (Setup(cpus=cpus, fastsock=fastsock, expect=expect) for cpus in confined[work.cpus])
        return server, client

    plain = work.settings if work.baseline == "fastsock" else None
    expect_plain = work.expect if work.baseline == "fastsock" or not work.expect else "kernel"
    return ends(plain, expect_plain), ends(work.settings, work.expect)


def timed(order: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {**order, "seconds": seconds, "warm": seconds * WARM_SHARE}


def measure_pairs(work: Work, plan: Plan, run: int) -> list[Pair]:
    """A run on kernel TCP and one on fastsock, each in two fresh processes."""
    kernel, fastsock = setups(work)
    order = timed(work.order, plan.seconds)
    return [Pair(run_once(kernel, {**order, **work.kernel_order}), run_once(fastsock, order), run)]


def run_once(ends: Ends, order: dict[str, Any]) -> Sample:
    with RoleProcess("server", ends[0]) as server, RoleProcess("client", ends[1]) as client:
        return take(server, client, server.hear()["address"], order, ends[1].expect)


def measure_slices(work: Work, plan: Plan, run: int) -> list[Pair]:
    """Two clients, one plain and one patched, take turns at one server that knows nothing of fastsock.

    A difference of 3 % drowns in what two runs differ by anyway. So the server is one and the same process,
    the slices are short and many, neighbours are compared, and who goes first changes from slice to slice.
    """
    with ExitStack() as stack:
        (foreign, plain), (_, patched) = setups(work)
        server = stack.enter_context(RoleProcess("server", foreign))
        address = server.hear()["address"]
        ends = [
            (server, stack.enter_context(RoleProcess("client", setup)), address, setup.expect)
            for setup in (plain, patched)
        ]
        return take_turns(ends, work, plan, run)


def measure_server_slices(work: Work, plan: Plan, run: int) -> list[Pair]:
    """The same with the roles reversed: one plain client takes turns at two servers, one plain and one patched."""
    with ExitStack() as stack:
        (plain, foreign), (patched, _) = setups(work)
        client = stack.enter_context(RoleProcess("client", foreign))
        ends = []
        for setup in (plain, patched):
            server = stack.enter_context(RoleProcess("server", setup))
            ends.append((server, client, server.hear()["address"], foreign.expect))
        return take_turns(ends, work, plan, run)


Turn = tuple[RoleProcess, RoleProcess, Any, "str | None"]  # server, client, the server's address, expected path


def take_turns(ends: list[Turn], work: Work, plan: Plan, run: int) -> list[Pair]:
    order = timed(work.order, plan.slice_seconds)
    pairs = []
    for turn in range(plan.slices + 1):
        samples: list[Sample] = [{}, {}]
        for side in (0, 1) if turn % 2 else (1, 0):
            server, client, address, expect = ends[side]
            samples[side] = take(server, client, address, order, expect)
            if turn < plan.slices:
                samples[side].pop("stats", None)  # the last slice's say it all
        if turn:  # the first slices warm the processes up
            pairs.append(Pair(samples[0], samples[1], run))
    return pairs


# --- idle connections ---------------------------------------------------------------------------------------


def measure_idle(work: Work, plan: Plan, run: int) -> list[Pair]:
    kernel, fastsock = setups(work)
    return [Pair(idle_once(kernel, work, plan), idle_once(fastsock, work, plan), run)]


def idle_once(ends: Ends, work: Work, plan: Plan) -> Sample:
    """Resident memory that the connections added, and CPU time used while nothing happened on them.

    Memory is both processes' Rss, so that a shared page counts twice. While CPU time is counted, the client
    sleeps in a blocking `recv` and the server in a `poll` on all of its connections.
    """
    with RoleProcess("server", ends[0]) as server, RoleProcess("client", ends[1]) as client:
        both = (server, client)
        order = {**work.order, "connections": plan.idle_connections}
        client.tell({**order, "address": server.hear()["address"]})
        resident: dict[str, list[dict[str, int]]] = {}
        for expected in ("before", "connected", "moved"):
            stage = client.hear()["stage"]
            if stage != expected:
                raise RunFailed(f"the client is at {stage!r}, not at {expected!r}")
            sleep(QUIET_SECONDS)
            resident[stage] = [role.resident_kib() for role in both]
            client.tell({})
        sleep(QUIET_SECONDS)
        before = [(role.cpu_ticks(), role.cpu_nanoseconds()) for role in both]
        sleep(plan.idle_seconds)
        after = [(role.cpu_ticks(), role.cpu_nanoseconds()) for role in both]
        server.tell({})
        sample = client.hear()
        sample["server"] = server.hear()
    check(sample, ends[1].expect)
    if sample["server"]["spurious_wakeups"]:
        raise RunFailed(f"{sample['server']['spurious_wakeups']} wakeups of connections that had nothing to read")

    def grown(stage: str, memory: str) -> float:
        """KiB per connection since before the first one, both ends together."""
        added = sum(now[memory] - then[memory] for now, then in zip(resident[stage], resident["before"], strict=True))
        return added / plan.idle_connections

    return {
        **sample,
        "resident_kib": grown("moved", "Rss"),
        "resident_kib_before_the_move": grown("connected", "Rss"),
        "proportional_kib": grown("moved", "Pss"),
        "cpu_ticks": sum(now[0] - then[0] for now, then in zip(after, before, strict=True)),
        "cpu_nanoseconds": sum(now[1] - then[1] for now, then in zip(after, before, strict=True)),
        "idle_seconds": plan.idle_seconds,
        "connections": plan.idle_connections,
    }


MEASURES: dict[str, Callable[[Work, Plan, int], list[Pair]]] = {
    "pairs": measure_pairs,
    "slices": measure_slices,
    "server_slices": measure_server_slices,
    "idle": measure_idle,
}


# --- curves -------------------------------------------------------------------------------------------------

CURVE_SETUPS = dict(
    zip(
        CURVE_PATHS,
        (Setup(fastsock={}, expect="ring"), Setup(expect="kernel"), Setup(family="unix", expect="kernel")),
        strict=True,
    )
)


def measure_curves(plan: Plan, tell: Tell) -> Curves:
    """Latency and bandwidth over message size on all paths, run after run; a path that fails has no curve."""
    panels: dict[str, dict[str, dict[int, list[float]]]] = {panel: {} for panel in CURVE_READINGS}
    problems: dict[str, str] = {}
    for run in range(plan.curve_runs):
        for path, setup in CURVE_SETUPS.items():
            if path in problems:
                continue
            tell(f"curves, {path}  run {run + 1}/{plan.curve_runs}")
            try:
                figures = curve_once(setup, plan)
            except RunFailed as failure:
                problems[path] = f"{path}: {failure}"
                for panel in panels.values():
                    panel.pop(path, None)
                continue
            for name, by_size in figures.items():
                for size, figure in by_size.items():
                    panels[name].setdefault(path, {}).setdefault(size, []).append(figure)
    return Curves(panels, list(problems.values()))


def curve_once(setup: Setup, plan: Plan) -> dict[str, dict[int, float]]:
    orders = {"latency": pingpong, "bandwidth": stream}
    figures: dict[str, dict[int, float]] = {panel: {} for panel in orders}
    with RoleProcess("server", setup) as server, RoleProcess("client", setup) as client:
        address = server.hear()["address"]
        for panel, order_of in orders.items():
            for size in CURVE_SIZES:
                order = timed(order_of(size), plan.curve_seconds)
                sample = take(server, client, address, order, setup.expect)
                figures[panel][size] = sample[CURVE_READINGS[panel].key]
    return figures
