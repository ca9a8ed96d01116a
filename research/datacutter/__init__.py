"""SocketVIA and DataCutter: the guarantee experiments on filter pipelines (Balaji and others)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

from bench.turns import Line, Start, Take
from research.datacutter.guarantees import DR, RING, TCP, bound, latency_at_rate, rate_at_latency
from research.figures import Figure, Panel, Plan, Sample, Versus
from research.messages import message_pingpong, message_stream
from research.series import (
    KERNEL,
    KERNEL_ONE,
    Orders,
    apart,
    command,
    cpus,
    free,
    pair,
    pingpong,
    roles,
    run_program,
    stream,
)

SIZES = {"full": (4, 16, 64, 256, 1024, 4096, 16384, 65536), "quick": (4, 1024, 65536), "least": (4,)}
BLOCKS = {
    "full": (1024, 2048, 4096, 8192, 16384, 32768, 65536, 262144, 1 << 20),
    "quick": (2048, 16384, 65536, 524288),
    "least": (16384,),
}
IMAGE = {"full": 16 << 20, "quick": 16 << 20, "least": 256 << 10}
PROGRAM = "research.datacutter.visualize"
MICROSCOPE = 18.0  # ns for a byte: the computing of the Virtual Microscope
TCP_SHARE = 1.15  # the paper's 18 ns against the 15.7 ns that its TCP took for a byte


FIG19 = Figure(
    name="fig19-20",
    paper="datacutter",
    title="SocketVIA figs 19 and 20: latency and bandwidth",
    xlabel="message size, bytes",
    xs=SIZES,
    lines=pair(pingpong, stream),
    panels=(
        Panel("half_round_trip", "half round trip, s"),
        Panel("bytes_per_second", "bytes/s", lower_is_better=False),
    ),
    said=(("SocketVIA, 4 B", "9.1 us; TCP 45 us"), ("peak bandwidth", "763 Mbit/s; VIA 795; TCP 510")),
    shows="The curves from which the block sizes of the next figures follow.",
    versus=(Versus("fastsock", KERNEL), Versus("fastsock", KERNEL_ONE)),
    slower="On one CPU the kernel's receiver finds the message in the cache of the processor that wrote it, and nobody"
    " is woken on another; from some size on, two copies between two processors take longer than that.",
)

ZERO_COPY, LENT = "fastsock, zero-copy receive (a channel)", "fastsock, lent and zero-copy receive (a channel)"


def lent(order: Orders) -> Orders:
    return lambda size: {**order(size), "lent": True}


FIG21 = Figure(
    name="fig21-22",
    paper="datacutter",
    title="SocketVIA figs 21 and 22: zero-copy receive",
    xlabel="message size, bytes",
    xs={size: (*xs, *((262144, 1 << 20) if size != "least" else ())) for size, xs in SIZES.items()},
    lines=(
        Line(ZERO_COPY, roles(free, message_pingpong, message_stream)),
        Line(LENT, roles(free, lent(message_pingpong), lent(message_stream))),
        *pair(pingpong, stream),
    ),
    panels=(
        Panel("half_round_trip", "half round trip, s"),
        Panel("bytes_per_second", "bytes/s", lower_is_better=False),
    ),
    said=(("zero-copy SocketVIA", "not much change in the bandwidth: its pipelining hides the copy"),),
    shows="The receiver uses a message where it lies, and gives it back. The sender copies it there, as in the paper,"
    " or has borrowed the memory and made the message in place (then nothing is written here: what is measured is the"
    " passing on, and it does not depend on the size).",
    versus=(
        Versus(ZERO_COPY, KERNEL),
        Versus(ZERO_COPY, KERNEL_ONE),
        Versus(ZERO_COPY, "fastsock"),
        Versus(LENT, KERNEL),
        Versus(LENT, "fastsock"),
    ),
    slower="A message of a channel has a fixed price, some calls of Python more than a socket's: it pays where a copy"
    " takes longer. A stream of small sends is combined, which messages are not.",
)


@cache
def own_cost(seconds: float) -> float:
    """Nanoseconds that kernel TCP takes here for a byte of a stream of 64 KiB messages, with a CPU each."""
    with ExitStack() as stack:
        sample = roles(apart, lambda _: stream(65536))(stack, Plan(seconds=max(seconds, 0.05)))(0)
    return 1e9 / sample["bytes_per_second"]


def sweep(way: str, nanoseconds: Callable[[Plan], float], *more: Any) -> Start:
    def start(stack: ExitStack, plan: Plan) -> Take:
        cost = nanoseconds(plan)

        def once(x: Any) -> Sample:
            words = ("sweep", "--block", x, "--nanoseconds", cost, "--image", IMAGE[plan.size],
                     "--seconds", plan.seconds, *more)  # fmt: skip
            return {**run_program(command(way, PROGRAM, *words)), "nanoseconds": cost}

        return once

    return start


def guarantees(name: str, title: str, lines: tuple[Line, ...], **kw: Any) -> Figure:
    """`lines`: fastsock's, and kernel TCP's, by whose block "fastsock" without DR has to go."""
    tcp = lines[1].name
    return Figure(
        name=name,
        paper="datacutter",
        title=title,
        xlabel="block size, bytes",
        xs=BLOCKS,
        lines=lines,
        panels=(
            Panel("updates", "complete updates/s", lower_is_better=False),
            Panel("latency", "s for a partial update"),
            Panel(
                "rate", "s for a partial update", derive=partial(latency_at_rate, tcp=tcp),
                xlabel="guaranteed complete updates/s",
            ),
            Panel(
                "guaranteed", "complete updates/s", lower_is_better=False, derive=partial(rate_at_latency, tcp=tcp),
                xlabel="guaranteed latency of a partial update, us",
            ),
        ),
        runs=2,
        quick_runs=1,
        **kw,
    )  # fmt: skip


def four_processes(nanoseconds: Callable[[Plan], float]) -> tuple[Line, ...]:
    return Line(RING, sweep("fastsock", nanoseconds)), Line(TCP, sweep("plain", nanoseconds))


def two_processes(nanoseconds: Callable[[Plan], float]) -> tuple[Line, ...]:
    """A repository and the client: two processes, with a CPU each on kernel TCP as they had a node each."""
    two = ("--filters", 1)
    return (
        Line(RING, sweep("fastsock", nanoseconds, *two)),
        Line(KERNEL, sweep("plain", nanoseconds, *two, "--cpus", *cpus(0), *cpus(1))),
        Line(KERNEL_ONE, sweep("plain", nanoseconds, *two, "--cpus", *cpus(1), *cpus(1))),
    )


def nothing(plan: Plan) -> float:
    return 0.0


SLOWER = (
    "Four processes share two CPUs here, where the paper had a node for each filter. While an image passes through,"
    " nobody can poll: all four want a processor, each hand-over is a wakeup by the kernel, and large blocks are"
    " copied twice on either path. A block that is passed on alone pays for three wakeups and a move's rest."
)

NO_COMPUTATION = (
    ("updates at a latency limit (fig. 26)", "over 6 times TCP's without repartitioning, over 8 times with it"),
    ("latency at an update rate (fig. 24)", "over 3.5 times better without, over 10 times with it"),
    ("TCP", "no more than 3.25 complete updates/s; drops out at 100 us"),
)


def no_computation(tcp: str) -> tuple[Versus, ...]:
    return (
        Versus(DR, tcp, goal=6, keys=("guaranteed",)),
        Versus(RING, tcp, keys=("guaranteed",)),
        Versus(DR, tcp, goal=10, keys=("rate",)),
        Versus(RING, tcp, keys=("updates", "latency")),
    )


FIG24 = guarantees(
    "fig24-26",
    "DataCutter figs 24 and 26: no computation",
    four_processes(nothing),
    said=NO_COMPUTATION,
    shows="Block sizes are chosen from each path's measured curve (the first two panels).",
    versus=no_computation(TCP),
    slower=SLOWER,
    conclusion=bound,
)
FIG24_APART = guarantees(
    "fig24-26-apart",
    "DataCutter figs 24 and 26 with a CPU each: a repository and the client",
    two_processes(nothing),
    said=NO_COMPUTATION,
    shows="The same with two processes, so that on two CPUs each has its own, as each filter had a node in the paper.",
    versus=(*no_computation(KERNEL), Versus(DR, KERNEL_ONE, keys=("guaranteed", "rate"))),
    slower="On one CPU no hand-over is a wakeup of another processor, and the second copy finds the data in the cache"
    " of the first.",
)
FIG25 = guarantees(
    "fig25-27",
    "DataCutter figs 25 and 27: 18 ns of computation for a byte",
    four_processes(lambda plan: MICROSCOPE),
    said=(
        ("updates at a latency limit (fig. 27)", "up to 4 times TCP's"),
        ("latency at an update rate (fig. 25)", "over 4 times better without repartitioning, over 12 with it"),
        ("with a generous limit", "both alike: computing is the bottleneck"),
    ),
    shows="18 ns are the paper's, of a machine on which TCP took 15.7 ns for a byte. Here they are many times what"
    " either path takes, so computing bounds both.",
    versus=(Versus(DR, TCP, keys=("guaranteed", "rate")), Versus(RING, TCP, keys=("updates", "latency"))),
    slower=SLOWER,
)
FIG25B = guarantees(
    "fig25-27-own",
    "DataCutter figs 25 and 27, with 1.15 times what kernel TCP takes here for a byte",
    four_processes(lambda plan: TCP_SHARE * own_cost(plan.seconds)),
    said=(("the same figures", "the paper's 18 ns are 1.15 times its TCP's 15.7 ns"),),
    shows="The computation of the paper in the proportion that it had to the network.",
    versus=(Versus(DR, TCP, keys=("guaranteed", "rate")), Versus(RING, TCP, keys=("updates", "latency"))),
    slower=SLOWER,
)

PARTITIONS = (1, 8, 64)
MIXED = {"full": 16 << 20, "quick": 4 << 20, "least": 256 << 10}  # bytes of an image


def mix(way: str, partitions: int, nanoseconds: float) -> Start:
    def start(stack: ExitStack, plan: Plan) -> Take:
        image = MIXED[plan.size]
        words = ("mix", "--image", image, "--block", image // partitions, "--nanoseconds", nanoseconds)
        answers: dict[str, float] = {}

        def once(x: Any) -> Sample:
            if not answers:  # one start gives all shares
                answers.update(run_program(command(way, PROGRAM, *words)))
            return {"seconds": answers[str(x)]}

        return once

    return start


def mixed(name: str, title: str, nanoseconds: float) -> Figure:
    ways = (("fastsock", "fastsock"), ("kernel TCP", "plain"))
    return Figure(
        name=name,
        paper="datacutter",
        title=title,
        xlabel="complete updates among the queries, %",
        xs={"full": (0, 20, 40, 60, 80, 100), "quick": (0, 20, 40, 60, 80, 100), "least": (0, 100)},
        lines=tuple(
            Line(f"{path}, {partitions} partitions", mix(way, partitions, nanoseconds))
            for partitions in PARTITIONS
            for path, way in ways
        ),
        panels=(Panel("seconds", "mean response, s"),),
        said=(
            ("64 partitions, 150 ms", "TCP bears up to 60% complete updates, SocketVIA up to 90%"),
            ("without partitions", "the share makes no difference"),
        ),
        shows="The other queries zoom into 4 blocks. Without partitions every query moves the whole image.",
        versus=tuple(Versus(f"fastsock, {p} partitions", f"kernel TCP, {p} partitions") for p in PARTITIONS),
        slower=SLOWER,
        log_x=False,
        runs=2,
        quick_runs=1,
    )


FIG28 = mixed("fig28", "DataCutter fig. 28: query mix, no computation", 0.0)
FIG29 = mixed("fig29", "DataCutter fig. 29: query mix, 18 ns for a byte", MICROSCOPE)

SLEPT = 180.0  # ns for a byte, ten times the paper's: long enough to be waited for and not spun


def balance(way: str, block: int, schedule: str) -> Start:
    def start(stack: ExitStack, plan: Plan) -> Take:
        def once(x: Any) -> Sample:
            words = ("balance", "--image", 512 << 10, "--block", block, "--copies", 3, "--slow", x,
                     "--schedule", schedule, "--nanoseconds", SLEPT)  # fmt: skip
            return run_program(command(way, PROGRAM, *words))

        return once

    return start


FIG31 = Figure(
    name="fig31",
    paper="datacutter",
    title="DataCutter fig. 31: time wasted by a fast copy, with one slow copy of three",
    xlabel="how many times slower the slow copy is",
    xs={"full": (2, 4, 6, 8, 10), "quick": (2, 10), "least": (4,)},
    lines=(
        Line("kernel TCP, round robin, 16 KiB", balance("plain", 16384, "round-robin")),
        Line("fastsock, round robin, 2 KiB", balance("fastsock", 2048, "round-robin")),
        Line("kernel TCP, round robin, 2 KiB", balance("plain", 2048, "round-robin")),
        Line("fastsock, demand driven, 2 KiB", balance("fastsock", 2048, "demand")),
        Line("kernel TCP, demand driven, 2 KiB", balance("plain", 2048, "demand")),
    ),
    panels=(Panel("wasted", "s wasted by a fast copy"), Panel("seconds", "s for the whole unit of work")),
    said=(
        ("block for a perfect pipeline", "16 KB with TCP, 2 KB with SocketVIA"),
        ("time wasted with SocketVIA", "8 times less"),
    ),
    shows="Round robin gives the slow copy as much as the others, on any path; who waits for it waits as long. Demand"
    " driven scheduling deals a copy two buffers ahead, and so sends it less. The block sizes are the paper's; kernel"
    " TCP today bears 2 KiB too. Computing (180 ns for a byte) is waited for, since three nodes do not fit on two"
    " CPUs.",
    versus=(
        Versus("fastsock, round robin, 2 KiB", "kernel TCP, round robin, 16 KiB"),
        Versus("fastsock, round robin, 2 KiB", "kernel TCP, round robin, 2 KiB"),
        Versus("fastsock, demand driven, 2 KiB", "kernel TCP, demand driven, 2 KiB"),
        Versus("fastsock, demand driven, 2 KiB", "kernel TCP, round robin, 16 KiB"),
    ),
    slower="The slow copy's computing decides, and it is the same on both paths; what is left is how a wakeup falls"
    " among five processes on two CPUs.",
    log_x=False,
    runs=2,
    quick_runs=1,
)

FIGURES = (FIG19, FIG21, FIG24, FIG24_APART, FIG25, FIG25B, FIG28, FIG29, FIG31)
