"""Works and curves as lines that take turns (`bench.turns`), and what a run has to be to count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.placement import placed
from bench.process import RunFailed
from bench.results import Curves, Pair, Result, Sample
from bench.turns import Line, Start, Take, Tell, take_turns
from bench.worker_process import RoleProcess, Setup
from bench.workloads import CURVE_PATHS, CURVE_READINGS, CURVE_SIZES, Plan, Work, pingpong, stream

WARM_SHARE = 0.2  # of the timed seconds, run before them and not timed
MOVED_SHARE = 0.5  # of connections that must be on the ring: one that closes early may not have got there
QUIET_SECONDS = 0.1  # between the last byte and the reading of an idle process

Ends = tuple[Setup, Setup]  # server, client
KERNEL, FASTSOCK = "kernel", "fastsock"


def measure(works: Iterable[Work], plan: Plan, tell: Tell) -> list[Result]:
    """Measure works one after the other; one that fails is an invalid result, not an exception."""
    taken: dict[str, tuple[list[Pair], str | None]] = {}
    results = []
    for work in works:
        if work.samples_key not in taken:
            try:
                taken[work.samples_key] = MEASURES[work.measured_by](work, plan, partial(about, tell, work.name)), None
            except (RunFailed, OSError) as failure:
                taken[work.samples_key] = [], str(failure)
        results.append(Result(work, *taken[work.samples_key]))
    return results


def about(tell: Tell, name: str, words: str) -> None:
    tell(f"{name}  {words}")


# --- what must hold -----------------------------------------------------------------------------------------


def take(server: RoleProcess, client: RoleProcess, address: Any, order: dict[str, Any], expect: str | None) -> Sample:
    """One sample, with the CPU time of both ends beside it. RunFailed when a role fails or the connection was not
    where it has to be."""
    begun, before = time.perf_counter(), server.cpu_nanoseconds() + client.cpu_nanoseconds()
    client.tell({**order, "address": address})
    try:
        sample = client.hear()
    except RunFailed as failure:
        raise RunFailed(f"{failure}; {last_words(server)}") from None
    sample["cpus"] = [server.last_cpu(), client.last_cpu()]
    sample["server"] = server.hear()
    spent = server.cpu_nanoseconds() + client.cpu_nanoseconds() - before
    sample["cpus_busy"] = spent / 1e9 / (time.perf_counter() - begun)
    if "cpu_seconds" in sample:
        ends = ((sample, sample["count"]), (sample["server"], sample["server"]["messages"]))
        sample["cpu_per_message"] = sum(end["cpu_seconds"] / messages for end, messages in ends)
    elif sample.get("count") and "elapsed" in sample:
        sample["cpu_per_message"] = sample["cpus_busy"] * sample["elapsed"] / sample["count"]
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


def setups(work: Work) -> tuple[Ends, Ends]:
    """How the ends of a work start on kernel TCP, and how on fastsock."""

    def ends(fastsock: dict[str, Any] | None, expect: str | None) -> Ends:
        server, client = (Setup(cpus=cpus, fastsock=fastsock, expect=expect) for cpus in placed(work.cpus))
        return server, client

    plain = work.settings if work.baseline == "fastsock" else None
    expect_plain = work.expect if work.baseline == "fastsock" or not work.expect else "kernel"
    return ends(plain, expect_plain), ends(work.settings, work.expect)


def timed(order: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {**order, "seconds": seconds, "warm": seconds * WARM_SHARE}


Held = dict[ExitStack, tuple[RoleProcess, Any]]


def starter(ends: Ends, order_of: Callable[[Any], dict[str, Any]], shared: str = "", held: Held | None = None) -> Start:
    """Starts a server and a client, which carry out the order of an x. One of them, `shared`, is `held` for all lines
    of a run."""
    held = {} if held is None else held

    def start(stack: ExitStack, _: Any) -> Take:
        def role(kind: str, setup: Setup) -> tuple[RoleProcess, Any]:
            if kind == shared and stack in held:
                return held[stack]
            process = stack.enter_context(RoleProcess(kind, setup))
            told = process, process.hear()["address"] if kind == "server" else None
            if kind == shared:
                held.clear()
                held[stack] = told
            return told

        (server, address), (client, _) = role("server", ends[0]), role("client", ends[1])
        return lambda x: take(server, client, address, order_of(x), ends[1].expect)

    return start


def paired(kernel: Start, fastsock: Start, plan: Plan, tell: Tell, turns: int = 1) -> list[Pair]:
    """Both lines in turns, as pairs. Of several turns the first does not count: it warms the processes up."""
    xs = range(turns + 1) if turns > 1 else [0]
    lines = Line("kernel", kernel), Line("fastsock", fastsock)
    samples = take_turns(lines, xs, plan, plan.runs, tell, needed=True).samples
    counted = [str(x) for x in xs if x or turns == 1]
    return [
        Pair(samples["kernel"][x][run], samples["fastsock"][x][run], run) for run in range(plan.runs) for x in counted
    ]


def measure_pairs(work: Work, plan: Plan, tell: Tell) -> list[Pair]:
    """Kernel TCP and fastsock, each in two fresh processes for a run."""
    kernel, fastsock = setups(work)
    order = timed(work.order, plan.seconds)
    plain = starter(kernel, lambda _: {**order, **work.kernel_order})
    return paired(plain, starter(fastsock, lambda _: order), plan, tell)


def measure_slices(work: Work, plan: Plan, tell: Tell) -> list[Pair]:
    """One end knows nothing of fastsock, and two others, one plain and one patched, take turns at it: two clients at
    one server, or one client at two servers.

    A difference of 3 % drowns in what two runs differ by anyway. So the foreign end is one and the same process, the
    slices are short and many, and neighbours are compared.
    """
    kernel, fastsock = setups(work)
    shared = "server" if work.measured_by == "slices" else "client"
    fastsock = (kernel[0], fastsock[1]) if shared == "server" else (fastsock[0], kernel[1])
    order = timed(work.order, plan.slice_seconds)
    held: Held = {}
    plain, patched = (starter(ends, lambda _: order, shared, held) for ends in (kernel, fastsock))
    pairs = paired(plain, patched, plan, tell, plan.slices)
    for sample in (sample for pair in pairs[:-1] for sample in (pair.kernel, pair.fastsock)):
        sample.pop("stats", None)  # the last slice's say it all
    return pairs


# --- idle connections ---------------------------------------------------------------------------------------


def measure_idle(work: Work, plan: Plan, tell: Tell) -> list[Pair]:
    def start(ends: Ends) -> Start:
        return lambda *_: lambda _: idle_once(ends, work, plan)

    return paired(*map(start, setups(work)), plan, tell)


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
            time.sleep(QUIET_SECONDS)
            resident[stage] = [role.resident_kib() for role in both]
            client.tell({})
        time.sleep(QUIET_SECONDS)
        before = [(role.cpu_ticks(), role.cpu_nanoseconds()) for role in both]
        time.sleep(plan.idle_seconds)
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


MEASURES: dict[str, Callable[[Work, Plan, Tell], list[Pair]]] = {
    "pairs": measure_pairs,
    "slices": measure_slices,
    "server_slices": measure_slices,
    "idle": measure_idle,
}


# --- curves -------------------------------------------------------------------------------------------------

CURVE_SETUPS = (Setup(fastsock={}, expect="ring"), Setup(expect="kernel"), Setup(family="unix", expect="kernel"))
CURVE_ORDERS = {"latency": pingpong, "bandwidth": stream}


def measure_curves(plan: Plan, tell: Tell) -> Curves:
    """Latency and bandwidth over message size on all paths; a path that fails has no curve."""

    def order_of(x: tuple[str, int]) -> dict[str, Any]:
        return timed(CURVE_ORDERS[x[0]](x[1]), plan.curve_seconds)

    lines = [Line(path, starter((it, it), order_of)) for path, it in zip(CURVE_PATHS, CURVE_SETUPS, strict=True)]
    xs = [(panel, size) for panel in CURVE_ORDERS for size in CURVE_SIZES]
    taken = take_turns(lines, xs, plan, plan.curve_runs, partial(about, tell, "curves"))
    panels = {
        panel: {
            path: {size: [one[reading.key] for one in by_x[str((panel, size))]] for size in CURVE_SIZES}
            for path, by_x in taken.samples.items()
            if path not in taken.problems
        }
        for panel, reading in CURVE_READINGS.items()
    }
    return Curves(panels, [f"{path}: {problem}" for path, problem in taken.problems.items()])
