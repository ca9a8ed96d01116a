"""SOVIA: A User-level Sockets Layer Over Virtual Interface Architecture (Kim, Kim, Jung)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.turns import Line, Start
from bench.worker_process import Setup
from research import natives
from research.figures import Figure, Panel, Versus
from research.ftp import ftp_lines
from research.raw import raw
from research.series import KERNEL, KERNEL_ONE, RING, apart, free, pingpong, roles, stream, together

SIZES = {"full": (4, 16, 64, 256, 1024, 4096, 16384, 32768), "quick": (4, 64, 1024, 16384), "least": (4, 2048)}
STREAMED = {"full": (4, 16, 64, 256, 1024, 2048, 4096, 16384, 32768), "quick": (16, 256, 2048, 32768), "least": (64,)}
ARGUMENTS = {"full": (0, 512, 1024, 2048, 4096), "quick": (0, 1024, 4096), "least": (0,)}

UNCOMBINED = {"combine": False, "_combine_when_full": False}
SINGLE = {**UNCOMBINED, "window": 1, "ack_threshold": 1}
FLOWCTRL = {**UNCOMBINED, "ack_threshold": 1}


def combined_pingpong(size: Any) -> dict[str, Any]:
    return pingpong(size, nodelay=False)


def handled(size: Any) -> dict[str, Any]:
    return {"loop": "research.sovia.loops:handled", "size": size}


def with_settings(settings: dict[str, Any], order: Callable[[Any], dict[str, Any]]) -> Start:
    return roles(lambda: free(settings), order)


FIG6A = Figure(
    name="fig6a",
    paper="sovia",
    title="SOVIA fig. 6a: latency, half a round trip",
    xlabel="message size, bytes",
    xs=SIZES,
    lines=(
        Line("fastsock, single-threaded", with_settings(UNCOMBINED, pingpong)),
        Line("fastsock, handler thread", with_settings(UNCOMBINED, handled)),
        Line("fastsock, combining", with_settings({}, combined_pingpong)),
        Line(KERNEL, roles(apart, pingpong)),
        Line(KERNEL_ONE, roles(together, pingpong)),
        Line("raw ring, from C", raw("pingpong", "half_round_trip")),
    ),
    panels=(Panel("half_round_trip", "half round trip, s"),),
    said=(
        ("native VIA, 4 B", "8.5 us"),
        ("SOVIA_SINGLE, 4 B", "10.5 us"),
        ("SOVIA_COMBINE", "1 to 2 us more"),
        ("SOVIA_HANDLER", "over 15 us more than SINGLE"),
        ("TCP, 4 B", "55 us"),
    ),
    shows="The layer's own cost is the distance between the raw ring and the single-threaded line. A handler thread"
    " costs a wakeup of a thread and a turn of the interpreter's lock for each message. Combining costs a ping-pong"
    " nothing: an open descriptor is claimed by a receiver that has nothing else, so there is no timer.",
    versus=(
        Versus("fastsock, single-threaded", KERNEL),
        Versus("fastsock, single-threaded", KERNEL_ONE),
        Versus("fastsock, handler thread", KERNEL),
    ),
    slower="With a handler thread, each message wakes a second thread of the same process, as it does in the paper;"
    " the wakeup is the kernel's again.",
)

FIG6B = Figure(
    name="fig6b",
    paper="sovia",
    title="SOVIA fig. 6b: bandwidth of a long sequence of sends",
    xlabel="message size, bytes",
    xs=STREAMED,
    lines=(
        Line("fastsock, w = 1", with_settings(SINGLE, stream)),
        Line("+ flow control, w = 32", with_settings(FLOWCTRL, stream)),
        Line("+ delayed ACKs, t = 16", with_settings(UNCOMBINED, stream)),
        Line("+ combining (default)", with_settings({}, stream)),
        Line(KERNEL, roles(apart, stream)),
        Line(KERNEL_ONE, roles(together, stream)),
        Line("raw ring, from C", raw("stream", "bytes_per_second")),
    ),
    panels=(Panel("bytes_per_second", "bytes/s", lower_is_better=False),),
    said=(
        ("native VIA, 32 KB", "815 Mbit/s"),
        ("SOVIA, peak", "814 Mbit/s"),
        ("TCP, 32 KB", "about 450 Mbit/s"),
        ("DACKS", "native VIA's bandwidth from 16 KB on"),
        ("COMBINE", "ahead of DACKS below 2 KB"),
    ),
    shows="With one descriptor each send waits for the acknowledgement of the one before. Credits overlap the two"
    " copies; delayed ACKs save cache lines that travel back; combining saves descriptors where sends are small.",
    versus=(Versus("+ combining (default)", KERNEL), Versus("+ combining (default)", KERNEL_ONE)),
    slower="w = 1 is not a way to run fastsock: it is the paper's starting point.",
)

TABLE1 = Figure(
    name="table1",
    paper="sovia",
    title="SOVIA table 1: FTP of 19,090,223 and 145,864,380 bytes",
    xlabel="file",
    xs={
        "full": ("19090223 get", "19090223 put", "145864380 get", "145864380 put"),
        "quick": ("19090223 get", "19090223 put", "145864380 get", "145864380 put"),
        "least": ("1909022 get", "1909022 put"),
    },
    lines=ftp_lines(),
    panels=(Panel("bits_per_second", "bit/s", lower_is_better=False, log=False),),
    said=(
        ("TCP/IP on cLAN", "262 and 254 Mbit/s"),
        ("SOVIA on cLAN", "573 and 532 Mbit/s"),
        ("local copy (ramdisk)", "611 and 538 Mbit/s"),
    ),
    shows="A blocking FTP server, a thread for each session, and ftplib; files in memory (/dev/shm). The local copy is"
    " the bound: the same read and write loop without a network between them.",
    versus=(Versus(RING, "kernel TCP"),),
    slower="Short transfers: the data connection is new for each file and pays for its move to the ring.",
    runs=3,
)


def rpc(system: str) -> Callable[[Any], dict[str, Any]]:
    return lambda size: {"loop": "research.sovia.rpc:rpc", "system": system, "size": size}


def rpc_lines(system: str) -> tuple[Line, ...]:
    ways: tuple[tuple[str, Callable[[], tuple[Setup, Setup]]], ...] = (
        (RING, free), ("kernel TCP", apart), ("kernel TCP, one CPU", together),
    )  # fmt: skip
    return tuple(Line(f"{system}, {way}", roles(ends, rpc(system))) for way, ends in ways)


RPC_SYSTEMS = ("thriftpy2", "ONC RPC", "rpyc", "xmlrpc")

FIG7 = Figure(
    name="fig7",
    paper="sovia",
    title="SOVIA fig. 7: an empty remote procedure",
    xlabel="argument size, bytes",
    xs=ARGUMENTS,
    lines=tuple(line for system in RPC_SYSTEMS for line in rpc_lines(system)),
    panels=(Panel("seconds", "s for a call"),),
    said=(
        ("ONC RPC over TCP on cLAN, no argument", "149 us"),
        ("ONC RPC over SOVIA, no argument", "35 us"),
        ("ratio", "4.3"),
    ),
    shows="Four systems, unchanged. What is left of a call is the system's own marshalling in Python, the same on"
    " every path.",
    versus=(
        Versus("thriftpy2, fastsock", "thriftpy2, kernel TCP", goal=4.3, at=0),
        *(Versus(f"{system}, fastsock", f"{system}, kernel TCP") for system in RPC_SYSTEMS[1:]),
        *(Versus(f"{system}, fastsock", f"{system}, kernel TCP, one CPU") for system in RPC_SYSTEMS),
    ),
    slower="On one CPU nobody is woken on another processor, and a call is bound by the system's own Python code,"
    " which then finds its data in one cache. rpyc polls its descriptor before each receive.",
    log_x=False,
)

TABLE1_VSFTPD = Figure(
    name="table1-vsftpd",
    paper="sovia",
    title="SOVIA table 1 by vsftpd and curl",
    xlabel="file",
    xs=TABLE1.xs,
    lines=natives.ftp_lines(),
    panels=TABLE1.panels,
    said=TABLE1.said,
    shows="Programs that are not Python, unchanged, both ends under `fastsock run`: vsftpd, which sends files by"
    " sendfile, and curl.",
    versus=(Versus(RING, "kernel TCP"),),
    slower="The data connection is new for each file, and moves on its way. Until then, and where it is over before, it"
    " is kernel TCP; on the ring sendfile is a read into memory and a copy.",
    runs=3,
)

FIG7_RPCGEN = Figure(
    name="fig7-rpcgen",
    paper="sovia",
    title="SOVIA fig. 7 by rpcgen and libtirpc",
    xlabel="argument size, bytes",
    xs={**ARGUMENTS, "full": (0, 512, 1024, 2048, 4096, 65536)},
    lines=natives.rpc_lines(),
    panels=FIG7.panels,
    said=FIG7.said,
    shows="ONC RPC in C, as the paper has it: a program of rpcgen, both ends under `fastsock run`. With an argument the"
    " call gives it back.",
    versus=(Versus(RING, "kernel TCP", goal=4.3, at=0),),
    slower="libtirpc waits by poll before each read.",
    log_x=False,
    seconds=0.5,
)

FIGURES = (FIG6A, FIG6B, TABLE1, TABLE1_VSFTPD, FIG7, FIG7_RPCGEN)
