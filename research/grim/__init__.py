"""GRIM: extensions of the message layer, and its sockets emulation (a thesis' chapter 8)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from bench.turns import Line, Samples, Start, Take
from research.figures import Figure, Panel, Plan, Sample, Table, Versus
from research.series import KERNEL, KERNEL_ONE, RING, command, free, pair, pingpong, roles, run_program

SIZES = {"full": (4, 64, 1024, 4096, 16384, 65536, 262144, 1 << 20), "quick": (4, 1024, 65536, 1 << 20), "least": (4,)}
MESSAGES = {"full": (4, 64, 1024, 4096, 16384, 32768), "quick": (4, 1024, 32768), "least": (4,)}


def bandwidth(samples: Samples) -> Table:
    """Bytes a second of a block that goes there and back."""
    return {
        line: {x: [float(x) / one["half_round_trip"] for one in taken] for x, taken in by_x.items()}
        for line, by_x in samples.items()
    }


FIG10 = Figure(
    name="fig8.10",
    paper="grim",
    title="GRIM fig. 8.10 and table 8.1: the sockets interface",
    xlabel="block size, bytes",
    xs=SIZES,
    lines=(*pair(pingpong), Line("fastsock, cut at 4 KiB", roles(lambda: free({"chunk_size": 4096}), pingpong))),
    panels=(
        Panel("half_round_trip", "latency, s"),
        Panel("bandwidth", "bytes/s of a block there and back", lower_is_better=False, derive=bandwidth),
    ),
    said=(
        ("GRIM sockets, LANai 4, P4", "22.2 us, 103.3 MB/s"),
        ("TCP, 100 Mb/s Ethernet, P4", "62.5 us, 11.7 MB/s"),
        ("a dip", "from 64 KB on, where GRIM begins to fragment"),
    ),
    shows="A block goes there and comes back whole. Where a message is larger than a descriptor (32 KiB) it is cut"
    " into several, which overlap its two copies.",
    versus=(Versus(RING, KERNEL), Versus(RING, KERNEL_ONE)),
    slower="On one CPU a block is still in the cache when the other end reads it; two processors fetch every line from"
    " each other.",
)

GROUP = "fastsock, a group"
CONNECTIONS, PLAIN, MULTICAST = "fastsock, N connections", "kernel TCP, N connections", "kernel IP multicast"
PANELS = (Panel("injection", "s to inject a message"), Panel("replies", "s until all have replied"))
SLOWER = (
    "One sender and N receivers are more processes than CPUs: each receiver has to be woken, and the sender cannot"
    " poll for all of them at once. It waits for the replies in order, so it polls for one while the others need its"
    " processor."
)


def group(way: str, kind: str, count: int | None = None, size: int | None = None) -> Start:
    """x is the size where `count` is given, else the number of receivers."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        def once(x: Any) -> Sample:
            words = (kind, count or x, size or x, plan.seconds)
            return run_program(command(way, "bench.group", *words))

        return once

    return start


def to_many(name: str, title: str, xlabel: str, xs: dict[str, tuple[Any, ...]], **fixed: int) -> Figure:
    return Figure(
        name=name,
        paper="grim",
        title=title,
        xlabel=xlabel,
        xs=xs,
        lines=(
            Line(GROUP, group("plain", "group", **fixed)),
            Line(CONNECTIONS, group("fastsock", "tcp", **fixed)),
            Line(PLAIN, group("plain", "tcp", **fixed)),
            Line(MULTICAST, group("plain", "multicast", **fixed)),
        ),
        panels=PANELS,
        said=(
            ("injecting one multicast message", "less than N messages"),
            ("all replies", "later with multicast than with N messages: the NI copies at 19 MB/s"),
            ("groups of 2 and 3, of 4 to 7", "alike for large messages: trees of the same depth"),
        ),
        shows="A group's message is written once, and all receivers read it where it lies; they answer by a second"
        " group, which the sender reads. Kernel multicast is unreliable and bounded by a datagram.",
        versus=(
            Versus(GROUP, MULTICAST),
            Versus(GROUP, PLAIN),
            Versus(CONNECTIONS, PLAIN),
            Versus(CONNECTIONS, MULTICAST),
        ),
        slower=SLOWER,
        log_x="count" in fixed,
        runs=2,
        quick_runs=1,
    )


FIG7A = to_many("fig8.7a", "GRIM fig. 8.7a: one to four", "message size, bytes", MESSAGES, count=4)
FIG7B = to_many("fig8.7b", "GRIM fig. 8.7b: one to eight", "message size, bytes", MESSAGES, count=8)
FIG8 = to_many(
    "fig8.8", "GRIM fig. 8.8: one to N, 1 KiB", "receivers",
    {"full": (1, 2, 3, 4, 5, 6, 7, 8), "quick": (1, 2, 4, 8), "least": (2,)}, size=1024,
)  # fmt: skip

FIGURES = (FIG10, FIG7A, FIG7B, FIG8)
