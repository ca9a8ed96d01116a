"""WSDLite: a lightweight alternative to Windows Sockets Direct Path (Speight, Shafi, Bennett)."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import Any

from bench.turns import Line, Samples, Start, Take
from bench.worker_process import Setup
from research.figures import Figure, Panel, Plan, Sample, Versus
from research.raw import raw
from research.series import (
    KERNEL,
    KERNEL_ONE,
    RING,
    apart,
    command,
    cpus,
    free,
    roles,
    run_program,
    together,
)  # fmt: skip

SIZES = {"full": (4, 16, 64, 256, 1024, 4096, 16384, 32768), "quick": (4, 256, 4096, 32768), "least": (64,)}
COPIED = {
    "full": (1024, 4096, 8192, 16384, 65536, 262144, 1 << 20, 1 << 22, 1 << 24),
    "quick": (4096, 16384, 65536, 1 << 20, 1 << 22),
    "least": (16384,),
}


def costs(size: Any) -> dict[str, Any]:
    block = max(8, min(2048, (4 << 20) // size))
    return {"loop": "research.wsdlite.loops:costs", "size": size, "block": block}


def efficiency(sample: Sample) -> Sample:
    """CPU time of both ends: the sender's for what it sent, the receiver's for what it received."""
    sender = sample["stream_cpu"] / sample["sent"]
    receiver = sample["server_stream_cpu"] / sample["server_received"]
    ends = ("", "server_")
    used = [sample[f"{end}stream_cpu"] / sample[f"{end}stream_seconds"] for end in ends]
    return {
        **sample,
        "round_trip": 2 * sample["half_round_trip"],
        "utilisation": sum(used) / 2,
        "mb_per_cpu_second": 1e-6 / (sender + receiver),
    }


NO_POLLING = "fastsock, no polling"

FIGS4 = Figure(
    name="fig4-7",
    paper="wsdlite",
    title="WSDLite figs 4 to 7: latency, bandwidth, CPU use, and MB for each CPU second",
    xlabel="message size, bytes",
    xs=SIZES,
    lines=(
        Line(RING, roles(free, costs, finish=efficiency)),
        Line(NO_POLLING, roles(lambda: free({"poll_us": 0}), costs, finish=efficiency)),
        Line(KERNEL, roles(apart, costs, finish=efficiency)),
        Line(KERNEL_ONE, roles(together, costs, finish=efficiency)),
    ),
    panels=(
        Panel("round_trip", "round trip, s (fig. 4)"),
        Panel("bytes_per_second", "bytes/s of a stream (fig. 5)", lower_is_better=False),
        Panel("utilisation", "CPU use of an end of the stream (fig. 6)", log=False),
        Panel("mb_per_cpu_second", "MB for each CPU second (fig. 7)", lower_is_better=False),
    ),
    said=(
        ("latency (fig. 4)", "WSDLite 19% above VIPL; WSDP 68% behind WSDLite"),
        ("bandwidth (fig. 5)", "WSDLite 72 MB/s, VIPL 80, TCP 30 to 35"),
        ("MB for each CPU second (fig. 7)", "ahead of TCP at every size"),
    ),
    shows="CPU time is that of both ends, user and system, polling included. A stream keeps its sender busy on any"
    " path; what counts is how much each second of it moves.",
    versus=(
        Versus(RING, KERNEL, keys=("round_trip", "bytes_per_second")),
        Versus(RING, KERNEL, goal=1, everywhere=True, keys=("mb_per_cpu_second",)),
        Versus(RING, KERNEL_ONE, keys=("round_trip", "bytes_per_second", "mb_per_cpu_second")),
        Versus(NO_POLLING, KERNEL, keys=("round_trip", "bytes_per_second", "mb_per_cpu_second")),
    ),
    slower="Both ends copy in user space: the sender into the ring, the receiver out of it. Kernel TCP copies twice as"
    " well, and on one CPU the second copy finds the data in the cache of the first. Without polling, a round trip is"
    " two wakeups, as it is in the kernel.",
)

RINGED, DIRECT, LENT = "ring: two pipelined copies", "kernel: one copy (process_vm_writev)", "lent buffer: one copy"


def crossing(samples: Samples) -> str:
    """Where one kernel copy and a lent buffer get ahead of the ring's two, if they do."""
    told = []
    for on in ("2 CPUs", "1 CPU"):
        ring = rates(samples, f"{RINGED}, {on}")
        for name in (DIRECT, LENT):
            other = rates(samples, f"{name}, {on}")
            ahead = sorted(int(x) for x in other if x in ring and other[x] > ring[x])
            if not ahead:
                told.append(f"- {on}: {name} is nowhere ahead of the ring.")
                continue
            best = max(ahead, key=lambda x: other[str(x)] / ring[str(x)])
            ratio = other[str(best)] / ring[str(best)]
            told.append(f"- {on}: {name} is ahead of the ring at {', '.join(map(str, ahead))} bytes; at best"
                        f" {ratio:.2f}x, at {best}.")  # fmt: skip
    return "**Where they cross:**\n\n" + "\n".join(told)


def rates(samples: Samples, line: str) -> dict[str, float]:
    return {x: median(one["bytes_per_second"] for one in taken) for x, taken in samples.get(line, {}).items()}


FIG3 = Figure(
    name="fig3",
    paper="wsdlite",
    title="WSDLite fig. 3: one copy or two (a prototype in C)",
    xlabel="message size, bytes",
    xs=COPIED,
    lines=tuple(
        Line(f"{name}, {'2 CPUs' if count == 2 else '1 CPU'}", raw(kind, "bytes_per_second", count))
        for count in (2, 1)
        for kind, name in (("stream", RINGED), ("direct", DIRECT), ("lent", LENT))
    ),
    panels=(Panel("bytes_per_second", "bytes/s", lower_is_better=False),),
    said=(("memory copy and RDMA cross at", "11.9 KB"),),
    shows="The prototype that decides whether a direct path for large messages is worth building: our two copies,"
    " which overlap on two CPUs; one copy by the kernel into the receiver's buffer, with the paper's set-up and"
    " completion messages; and a buffer that both map, which the receiver uses in place. A direct path would have to"
    " wait for the receiver's buffer, and to hold the sender until the copy is done.",
    conclusion=crossing,
)


def threads(count: Any) -> dict[str, Any]:
    return {"loop": "research.wsdlite.loops:threads", "threads": count, "size": 64}


def confined() -> tuple[Setup, Setup]:
    """fastsock with both ends on one CPU: then it does not poll."""
    setup = Setup(cpus=cpus(1), fastsock={}, expect="ring")
    return setup, setup


SMP = Figure(
    name="smp",
    paper="wsdlite",
    title="WSDLite 5.3: threads, on one CPU and on two",
    xlabel="threads, each with a connection",
    xs={"full": (1, 2, 4, 8), "quick": (1, 4), "least": (2,)},
    lines=(
        Line("fastsock, two CPUs", roles(free, threads)),
        Line("fastsock, one CPU", roles(confined, threads)),
        Line(KERNEL, roles(apart, threads)),
        Line(KERNEL_ONE, roles(together, threads)),
    ),
    panels=(Panel("round_trips_per_second", "round trips/s of all threads, 64 B", lower_is_better=False),),
    said=(
        ("four processors instead of one", "WSDLite 4.5% better, VIPL 0.6%, WSDP 17%"),
        ("threads in a process", "TCP 2, WSDLite 3, WSDP 7"),
    ),
    shows="With threads, those of one process take turns at the interpreter's lock. fastsock has one thread of its own"
    " in a process, which sleeps while connections live.",
    versus=(Versus("fastsock, two CPUs", KERNEL), Versus("fastsock, one CPU", KERNEL_ONE)),
    slower="A thread that polls holds a processor that another thread's peer needs, and one that waits in the ring"
    " passes the interpreter's lock on as one that waits in the kernel does; with more waiters than processors,"
    " polling cannot pay.",
    log_x=False,
)


def intercepted(kind: str) -> Any:
    return lambda size: {"loop": "research.wsdlite.loops:intercepted", "size": size, "class": kind}


def foreign_settings() -> tuple[Setup, Setup]:
    """Patched, but not to move: what interception costs a connection of kernel TCP."""
    return tuple(  # type: ignore[return-value]
        Setup(cpus=cpus(n), fastsock={"ports_allowed": "1"}, expect="tcp") for n in (1, 1)
    )


INTERCEPTION = Figure(
    name="interception",
    paper="wsdlite",
    title="WSDLite 5.4: what interception costs",
    xlabel="message size, bytes",
    xs={"full": (4, 64, 1024, 4096), "quick": (4, 1024), "least": (4,)},
    lines=(
        Line("fastsock, patch()", roles(free, intercepted("patched"))),
        Line("fastsock, its class named in the program", roles(free, intercepted("explicit"))),
        Line("kernel TCP, one CPU", roles(together, intercepted("plain"))),
        Line("kernel TCP, one CPU, patch() but never moved", roles(foreign_settings, intercepted("patched"))),
    ),
    panels=(Panel("half_round_trip", "half round trip, s"),),
    said=(("Detours", "3 us for each round trip"),),
    shows="`patch()` rewrites the slots through which loaded objects call the C library; there is no jump in the call"
    " itself. What a connection pays that stays on kernel TCP is a look at its state in each call.",
    versus=(
        Versus("fastsock, patch()", "fastsock, its class named in the program"),
        Versus("kernel TCP, one CPU, patch() but never moved", "kernel TCP, one CPU"),
    ),
    slower="The calls go through fastsock's functions, which look whether the connection is theirs before they ask the"
    " kernel: some nanoseconds for each call. The two ways on the ring run the same code; a difference between them is"
    " noise.",
)

APPLICATIONS = {
    "full": ("fft 128", "lu 512", "barnes-hut 16384"),
    "quick": ("fft 64", "lu 512", "barnes-hut 4096"),
    "least": ("fft 16", "lu 64", "barnes-hut 256"),
}


def application(way: str) -> Start:
    def start(stack: ExitStack, plan: Plan) -> Take:
        def once(x: Any) -> Sample:
            name, size = x.split()
            return run_program(command(way, "research.wsdlite.parallel", name, size))

        return once

    return start


FIG8 = Figure(
    name="fig8-9",
    paper="wsdlite",
    title="WSDLite figs 8 and 9: parallel programs of two workers",
    xlabel="program and size",
    xs=APPLICATIONS,
    lines=(Line(RING, application("fastsock")), Line("kernel TCP", application("plain"))),
    panels=(
        Panel("seconds", "s altogether"),
        Panel("computing", "s computing"),
        Panel("communicating", "s communicating and waiting"),
        Panel("utilisation", "CPU use of worker 0 (fig. 9)", log=False),
    ),
    said=(
        ("FFT-3D, Barnes-Hut, Ilink on WSDLite", "within 2% of VIPL"),
        ("LU on WSDLite against TCP", "a little less, for send throttling"),
        ("LU on WSDP", "60% longer than on WSDLite"),
    ),
    shows="Two workers with numpy, results checked against one worker's. Communicating includes waiting for a worker"
    " that still computes.",
    versus=(Versus(RING, "kernel TCP", keys=("seconds", "communicating")),),
    slower="Computing is most of the time, and what a worker waits for the other is the same on both paths.",
    runs=3,
    quick_runs=2,
)

FIGURES = (FIG3, FIGS4, SMP, INTERCEPTION, FIG8)
