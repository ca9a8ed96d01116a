"""High Performance User Level Sockets over Gigabit Ethernet: sockets over EMP (Balaji, Shivam, Wyckoff, Panda)."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean
from typing import Any

from bench.turns import Line, Start, Take
from bench.worker_process import Setup
from research import natives
from research.figures import Figure, Panel, Plan, Sample, Versus
from research.ftp import ftp_lines
from research.messages import datagrams, message_pingpong
from research.series import (
    KERNEL,
    KERNEL_ONE,
    RING,
    Orders,
    apart,
    command,
    free,
    on,
    pingpong,
    roles,
    roles_for,
    run_together,
    started,
    stream,
    together,
)  # fmt: skip

SIZES = {"full": (4, 16, 64, 256, 1024, 4096, 16384, 65536), "quick": (4, 256, 4096), "least": (4,)}
CREDITS = {"full": (2, 4, 8, 16, 32), "quick": (2, 8, 32), "least": (2, 32)}
REPLIES = {"full": (4, 64, 1024, 4096, 8192), "quick": (4, 1024, 8192), "least": (4,)}
CLIENTS = 3
BUFFERS = (64 << 10, 208 << 10)
"""Bytes asked for, which the kernel doubles: small ones, and the most that a program usually gets. The paper's 16 KB
are less than one segment of the loopback interface, and its transfers then wait for timers."""


def messages(size: Any) -> dict[str, Any]:
    return {"loop": "research.emp.loops:messages", "size": size}


DATAGRAM, UDP = "datagram (a channel)", "UDP datagrams, a CPU each"

FIG6 = Figure(
    name="fig6",
    paper="emp",
    title="EMP fig. 6: latency of the alternatives",
    xlabel="message size, bytes",
    xs=SIZES,
    lines=(
        Line("data streaming, every descriptor acknowledged", roles(lambda: free({"ack_threshold": 1}), pingpong)),
        Line("data streaming, delayed ACKs (default)", roles(free, pingpong)),
        Line(DATAGRAM, roles(free, message_pingpong)),
        Line(UDP, roles(apart, datagrams)),
        Line("message sockets, fastsock", roles(lambda: free(expect=None), messages)),
        Line("message sockets, kernel TCP", roles(apart, messages)),
        Line(KERNEL, roles(apart, pingpong)),
        Line(KERNEL_ONE, roles(together, pingpong)),
    ),
    panels=(Panel("half_round_trip", "half round trip, s"),),
    said=(
        ("raw EMP, 4 B", "28 us"),
        ("datagram sockets", "28.5 us"),
        ("data streaming with delayed ACKs and unexpected queue", "37 us"),
        ("TCP", "about 120 us"),
    ),
    shows="An acknowledgement here is a store to a line that the sender reads anyway: delaying it changes a ping-pong"
    " little, where the paper's NIC had to match tags. In a ping-pong nearly every ACK travels with the answer. A"
    " channel's message is copied once, into memory where the receiver uses it. But its calls are Python, where a"
    " socket's are C: other than in the paper, small messages take longer than the stream.",
    versus=(
        Versus(DATAGRAM, UDP),
        Versus(DATAGRAM, KERNEL, goal=4.2, at=4),
        Versus("data streaming, delayed ACKs (default)", KERNEL, goal=3.4, at=4),
        Versus("data streaming, delayed ACKs (default)", KERNEL_ONE),
        Versus("message sockets, fastsock", "message sockets, kernel TCP"),
    ),
    slower="A message of `multiprocessing.connection` is two reads and a good deal of Python at each end, on any path.",
)


def by_credits(delayed: bool) -> Start:
    def ends(credits: Any) -> tuple[Setup, Setup]:
        return free({"window": credits, "ack_threshold": max(1, credits // 2) if delayed else 1})

    def finish(sample: Sample) -> Sample:
        received = sample["server_stats_messages_received"]
        return {**sample, "acks": sample["server_stats_acks_alone"] / received}

    return roles_for(ends, lambda _: pingpong(4), lambda _: stream(1024), finish=finish)


FIG7 = Figure(
    name="fig7",
    paper="emp",
    title="EMP fig. 7: latency over credits, and what is acknowledged",
    xlabel="credits w (t = w/2)",
    xs=CREDITS,
    lines=(Line("delayed ACKs", by_credits(True)), Line("every descriptor acknowledged", by_credits(False))),
    panels=(
        Panel("half_round_trip", "half round trip of 4 B, s"),
        Panel("bytes_per_second", "stream of 1 KiB, bytes/s", lower_is_better=False),
        Panel("acks", "ACKs alone for each descriptor"),
    ),
    said=(
        ("latency falls with the credits", "50% of descriptors are for ACKs at w = 1, 6.25% at 32"),
        ("tag matching", "550 ns for each descriptor"),
    ),
    shows="Latency does not depend on the credits: there is no list of descriptors to walk. What the delay saves is"
    " seen in the third panel, and in the stream where the window is wide enough to have any use of it.",
)

TUNED = "kernel TCP, tuned by the kernel"


def fixed(size: int) -> str:
    return f"kernel TCP, buffers of {2 * size >> 10} KiB"


def buffered(order: Orders, size: int) -> Orders:
    return lambda x: {**order(x), "buffers": size}


FIG8 = Figure(
    name="fig8",
    paper="emp",
    title="EMP fig. 8: latency and bandwidth",
    xlabel="message size, bytes",
    xs=SIZES,
    lines=(
        Line(RING, roles(free, pingpong, stream)),
        Line(TUNED, roles(apart, pingpong, stream)),
        *(Line(fixed(size), roles(apart, buffered(pingpong, size), buffered(stream, size))) for size in BUFFERS),
        Line(KERNEL_ONE, roles(together, pingpong, stream)),
    ),
    panels=(
        Panel("half_round_trip", "half round trip, s"),
        Panel("bytes_per_second", "bytes/s", lower_is_better=False),
    ),
    said=(
        ("data streaming, 4 B", "37 us, 3.4 times better than TCP"),
        ("datagram, 4 B", "28.5 us, 4.2 times"),
        ("peak bandwidth", "840 Mbit/s; TCP 340 with 16 KB buffers, 550 tuned"),
    ),
    shows="Today's kernel tunes its buffers itself; what the paper had to do by hand is its default. Fixed small"
    " buffers cost it the bandwidth of long messages, as in the paper.",
    versus=tuple(Versus(RING, name) for name in (TUNED, *map(fixed, BUFFERS), KERNEL_ONE)),
)

FTP = Figure(
    name="ftp",
    paper="emp",
    title="EMP 6.3: FTP of 512 MB and of small files",
    xlabel="file",
    xs={
        "full": ("536870912 get", "536870912 put", "4096 get 100", "4096 put 100"),
        "quick": ("536870912 get", "4096 get 100"),
        "least": ("4096 get 3",),
    },
    lines=ftp_lines(),
    panels=(Panel("seconds", "s for a file"),),
    said=(("512 MB", "6.84 s; TCP 11.8 s"), ("a small file", "13.6 us; TCP 25.6 us (as printed; ms must be meant)")),
    shows="The same programs as in SOVIA's table 1. A small file is a connection of its own: its data fits in one"
    " descriptor, and what takes the time is opening the connection and the talk on the control connection.",
    versus=(Versus(RING, "kernel TCP"),),
    slower="Each small file has a data connection of its own, which is over before a move pays. A copy of 512 MB into"
    " memory that is not there yet takes a third of a second or a whole one on a virtual machine whose host hands out"
    " the pages, also where no network is between (the local copy): the ranges are wider than the paths differ.",
    runs=7,
    quick_runs=1,
)


Ways = tuple[str, int | None, int | None]  # plain or under fastsock; the CPUs of the server and of the clients


def web(ways: Ways, clients: int, **settings: str) -> Start:
    """So many clients at one server; seconds for a request, by how many requests a connection has."""
    way, server_cpu, client_cpu = ways

    def start(stack: ExitStack, plan: Plan) -> Take:
        served = command(way, "research.emp.web_server", "--workers", clients)
        server = started(stack, on(server_cpu, served), **settings)

        def once(x: Any) -> Sample:
            sample = {}
            for requests in (1, 8, 0):
                client = on(client_cpu, command(way, "research.emp.web_client", server.port, x, requests, plan.seconds))
                reports = run_together([client] * clients, **settings)
                sample[f"seconds_{requests}"] = mean(report["seconds"] for report in reports)
            return sample

        return once

    return start


EAGER, SHARED = "fastsock, moving at once", "kernel TCP"
FREE: Ways = ("fastsock", None, None)


def web_figure(name: str, title: str, clients: int, kernels: dict[str, Ways], **kw: Any) -> Figure:
    """fastsock as it is, fastsock where each connection moves with its first byte, and kernel TCP."""
    theirs = next(iter(kernels))
    return Figure(
        name=name,
        paper="emp",
        title=title,
        xlabel="size of the reply, bytes",
        xs=REPLIES,
        lines=(
            Line(RING, web(FREE, clients)),
            Line(EAGER, web(FREE, clients, FASTSOCK_MOVE_AFTER="0")),
            *(Line(kernel, web(ways, clients)) for kernel, ways in kernels.items()),
        ),
        panels=(
            Panel("seconds_1", "s for a request, a connection each"),
            Panel("seconds_8", "s for a request, 8 on a connection"),
            Panel("seconds_0", "s for a request, all on one"),
        ),
        said=(
            ("HTTP/1.0, a connection for each request", "up to 6 times faster than TCP"),
            ("8 requests on a connection", "still faster; no number printed"),
            ("unlimited", "the latency of fig. 8"),
        ),
        versus=(
            Versus(RING, theirs, keys=("seconds_1",)),
            Versus(RING, theirs, goal=3, keys=("seconds_8",)),
            Versus(RING, theirs, goal=6, keys=("seconds_0",)),
            Versus(EAGER, theirs),
            *(Versus(RING, other) for other in kernels if other != theirs),
        ),
        seconds=0.15,
        runs=3,
        **kw,
    )


MOVE = (
    "The kernel's connection is made in any case, where the paper hides the set-up in the first message, and a move to"
    " the ring costs as much as some dozens of requests return. So one that has 1 or 8 requests stays on kernel TCP by"
    " default, and costs more when it is made to move at once."
)

FIG9 = web_figure(
    "fig9",
    "EMP fig. 9: web server, three clients",
    CLIENTS,
    {SHARED: ("plain", None, None)},
    shows="Requests of 16 bytes, three client processes, a server of three threads. Nothing is confined to a CPU:"
    " where there are two, four processes share them.",
    slower=MOVE
    + " With more clients than CPUs, a wait cannot be polled through, and each wakeup is the kernel's. Where all is on"
    " one connection, a client that is on the ring and the server's thread do not sleep, and keep both CPUs; one that"
    " has not moved yet gets its turns from the scheduler, milliseconds apart. So in a short run the mean of three"
    " clients is either microseconds or hundreds of them, though the three together always get several times as many"
    " replies as on TCP.",
)
FIG9_APART = web_figure(
    "fig9-apart",
    "EMP fig. 9 with a CPU each: web server, one client",
    1,
    {KERNEL: ("plain", 0, 1), KERNEL_ONE: ("plain", 1, 1)},
    shows="The same programs with one client, so that on two CPUs each process has its own, as each had its host in"
    " the paper. Connections of 1 and of 8 requests stay on kernel TCP here too: what is faster is that fastsock polls"
    " the kernel before it sleeps, in `accept` as well, and so saves the wakeups.",
    slower=MOVE + " On one CPU no wakeup crosses processors.",
)

FTP_VSFTPD = Figure(
    name="ftp-vsftpd",
    paper="emp",
    title="EMP 6.3 by vsftpd and curl",
    xlabel="file",
    xs={**FTP.xs, "full": ("145864380 get", "145864380 put", "4096 get 100", "4096 put 100")},
    lines=natives.ftp_lines(),
    panels=FTP.panels,
    said=FTP.said,
    shows="The programs of SOVIA's table 1 by vsftpd and curl, and files of 146 MB instead of 512. The control"
    " connection stays on kernel TCP: vsftpd copies it onto its standard streams.",
    versus=(Versus(RING, "kernel TCP"),),
    slower=FTP.slower,
    runs=3,
    quick_runs=1,
)

FIG9_NGINX = Figure(
    name="fig9-nginx",
    paper="emp",
    title="EMP fig. 9 by nginx and wrk: web server, three connections",
    xlabel=FIG9.xlabel,
    xs=REPLIES,
    lines=natives.web_lines(CLIENTS),
    panels=FIG9.panels,
    said=FIG9.said,
    versus=tuple(versus for versus in FIG9.versus if versus.ours == RING),
    shows="Programs that are not Python, unchanged: nginx with one worker, and wrk with one thread and three"
    " connections, which both wait by epoll.",
    slower=MOVE,
    runs=3,
)

FIGURES = (FIG6, FIG7, FIG8, FTP, FTP_VSFTPD, FIG9, FIG9_APART, FIG9_NGINX)
