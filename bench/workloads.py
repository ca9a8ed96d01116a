"""The declared table of works: what is run on kernel TCP and on fastsock, and what fastsock has to reach."""

from __future__ import annotations

from typing import Any

import attrs

from bench.placement import APART, FREE, SERVER, TOGETHER


@attrs.frozen
class Reading:
    """One figure of a sample and how it is judged and shown."""

    key: str  # in the client's report
    unit: str  # of `bench.report.show`
    lower_is_better: bool = False


HALF_ROUND_TRIP = Reading("half_round_trip", "s", lower_is_better=True)
MESSAGES = Reading("messages_per_second", "msg/s")
BANDWIDTH = Reading("bytes_per_second", "B/s")
CONNECTIONS = Reading("connections_per_second", "conn/s")
REQUESTS = Reading("requests_per_second", "req/s")
CPU_PER_MESSAGE = Reading("cpu_per_message", "s", lower_is_better=True)
RESIDENT = Reading("resident_kib", "KiB", lower_is_better=True)
CPU = Reading("cpu_ticks", "ticks", lower_is_better=True)


@attrs.frozen
class Work:
    """One row of the table.

    `ratio` is how many times better than kernel TCP fastsock has to be; `limit`, where given instead, bounds
    the fastsock figure itself. `measured_by` names how the harness takes the samples: "pairs" of fresh
    processes, "slices" of two clients that take turns at one foreign server, or "idle". `cpus` is a placement of
    `bench.turns`, on kernel TCP and on fastsock alike. Where fastsock is to poll, it must not be confined: it does
    not poll where it may use one CPU only.
    """

    name: str
    title: str
    reading: Reading
    order: dict[str, Any]  # of both modes, see bench.loops
    ratio: float | None = None
    limit: float | None = None
    measured_by: str = "pairs"
    kernel_order: dict[str, Any] = attrs.field(factory=dict)  # what only the kernel's loops do
    settings: dict[str, Any] = attrs.field(factory=dict)  # of fastsock.patch()
    expect: str | None = "ring"
    cpus: str = FREE
    baseline: str = "kernel"  # "fastsock": both sides of a pair are, and `kernel_order` is what differs

    @property
    def samples_key(self) -> str:
        """Works that read different figures off the same runs have the same key."""
        return repr((self.order, self.kernel_order, self.settings, self.measured_by, self.cpus, self.baseline))


def pingpong(size: int) -> dict[str, Any]:
    return {"loop": "pingpong", "size": size, "nodelay": True}


def stream(size: int) -> dict[str, Any]:
    # Enough between two acknowledgements that waiting for one does not show.
    return {"loop": "stream", "size": size, "block": max(32, min(1 << 15, (64 << 20) // size))}


KIB, MIB = 1 << 10, 1 << 20
SMALL_STREAM = {**stream(64), "allocating": True}  # the receiver calls recv(65536)
BULK_STREAM = stream(64 * KIB)
BRIEF_BULK_STREAM = {**BULK_STREAM, "block": 128}  # for slices of a few milliseconds
NO_POLLING = {"poll_us": 0}
NOT_SLOWER = 1.0
WITHIN_3_PERCENT = 0.97


def not_slower(name: str, title: str, **how: Any) -> tuple[Work, ...]:
    """The ping-pong and the streams under conditions in which fastsock has no more to be than not slower."""
    return (
        Work(f"{name}-pingpong-4", f"{title}: ping-pong 4 B", HALF_ROUND_TRIP, pingpong(4), NOT_SLOWER, **how),
        Work(f"{name}-stream-64", f"{title}: stream of 64 B", MESSAGES, SMALL_STREAM, NOT_SLOWER, **how),
        Work(f"{name}-stream-64k", f"{title}: stream of 64 KiB", BANDWIDTH, BULK_STREAM, NOT_SLOWER, **how),
    )


def foreign(name: str, title: str, **how: Any) -> tuple[Work, ...]:
    """Kernel TCP between a patched client and a server that knows nothing of fastsock."""
    how = {"measured_by": "slices", "expect": "tcp", "ratio": WITHIN_3_PERCENT, **how}
    return (
        Work(f"{name}-pingpong-4", f"{title}: ping-pong 4 B", HALF_ROUND_TRIP, pingpong(4), **how),
        Work(f"{name}-stream-64k", f"{title}: stream of 64 KiB", BANDWIDTH, BRIEF_BULK_STREAM, **how),
    )


def echo(name: str, title: str, ratio: float, eventloop: str = "uvloop", **order: Any) -> tuple[Work, ...]:
    """Echo over asyncio: round trips per second, and CPU time of both processes per message."""
    order = {"loop": "aio", "api": "protocol", "eventloop": eventloop, **order}
    name, title = f"{eventloop}-{name}", f"{eventloop}: {title}"
    return (
        Work(name, title, REQUESTS, order, ratio),
        Work(f"{name}-cpu", f"{title}, CPU time", CPU_PER_MESSAGE, order, NOT_SLOWER),
    )


def foreign_asyncio(name: str, title: str, order: dict[str, Any]) -> tuple[Work, ...]:
    """A foreign server, then a foreign client: only the other end is patched."""
    return tuple(
        Work(
            f"{name}-{end}",
            f"{title}, foreign {end}",
            REQUESTS,
            order,
            WITHIN_3_PERCENT,
            measured_by="slices" if end == "server" else "server_slices",
            expect="tcp",
            cpus=APART,
        )
        for end in ("server", "client")
    )


def asyncio_works(eventloop: str) -> tuple[Work, ...]:
    """The works of an event loop, each against the same loop on kernel TCP."""
    how = {"eventloop": eventloop}
    one_shot = {"loop": "aio_one_shot", "eventloop": eventloop}
    one_connection = {"loop": "aio", "api": "protocol", "size": 64, "connections": 1, **how}
    ten_connections = {"loop": "aio", "api": "protocol", "size": KIB, "connections": 10, **how}
    http = {"loop": "http", "connections": 10, "compute_us": 200, **how}
    return (
        *echo("64-1", "64 B, 1 connection", 25, size=64, connections=1, **how),
        *echo("64-10", "64 B, 10 connections", 6, size=64, connections=10, **how),
        *echo("1k-10", "1 KiB, 10 connections", 5, size=KIB, connections=10, **how),
        *echo("1k-100", "1 KiB, 100 connections", 5, size=KIB, connections=100, **how),
        *echo("10k-10", "10 KiB, 10 connections", 3, size=10 * KIB, connections=10, **how),
        *echo("100k-10", "100 KiB, 10 connections", 1.6, size=100 * KIB, connections=10, **how),
        *echo("64-1000", "64 B, 1,000 connections", 4, size=64, connections=1000, **how),
        *echo("buffered", "buffered, 1 KiB, 10 connections", 5, size=KIB, connections=10, api="buffered", **how),
        *echo("streams", "streams, 64 B, 10 connections", 2, size=64, connections=10, api="streams", **how),
        *echo("tls", "TLS, 1 KiB, 10 connections", NOT_SLOWER, size=KIB, connections=10, tls=True, **how),
        Work(
            f"{eventloop}-one-shot",
            f"{eventloop}: one-shot connections",
            CONNECTIONS,
            one_shot,
            NOT_SLOWER,
            expect=None,
        ),
        Work(
            f"{eventloop}-among-5000",
            f"{eventloop}: 1 connection among 5,000 idle, against the same without them",
            REQUESTS,
            {**one_connection, "idle": 5000},
            1 / 1.3,
            kernel_order={"idle": 0},
            baseline="fastsock",
        ),
        *foreign_asyncio(f"{eventloop}-foreign", f"{eventloop}: kernel TCP, 1 KiB", ten_connections),
        *foreign_asyncio(
            f"{eventloop}-http-foreign", f"{eventloop}: uvicorn under aiohttp on kernel TCP", {**http, "compute_us": 0}
        ),
        Work(f"{eventloop}-http", f"{eventloop}: HTTP, 200 us of computing", REQUESTS, http, NOT_SLOWER),
        Work(f"{eventloop}-http-cpu", f"{eventloop}: HTTP, CPU time but computing", CPU_PER_MESSAGE, http, NOT_SLOWER),
    )


WORKS = (
    Work("pingpong-4", "ping-pong 4 B, half round trip", HALF_ROUND_TRIP, pingpong(4), 50),
    Work(
        "pingpong-4-spinning",
        "ping-pong 4 B, TCP ends spinning",
        HALF_ROUND_TRIP,
        pingpong(4),
        6,
        kernel_order={"spin": True},
    ),
    Work("pingpong-1k", "ping-pong 1 KiB, half round trip", HALF_ROUND_TRIP, pingpong(KIB), 30),
    Work("stream-64", "stream of 64 B", MESSAGES, SMALL_STREAM, 4),
    Work("stream-64k", "stream of 64 KiB", BANDWIDTH, BULK_STREAM, 5),
    Work("stream-1m", "stream of 1 MiB", BANDWIDTH, stream(MIB), 2.5),
    *not_slower("nopoll", "no polling", settings=NO_POLLING, cpus=APART),
    *not_slower("onecpu", "one CPU", cpus=TOGETHER),
    Work("one-shot", "one-shot connections", CONNECTIONS, {"loop": "one_shot"}, 1.3, expect=None),
    Work("requests-100", "connections of 100 small requests", REQUESTS, {"loop": "requests"}, 5),
    # On one CPU nothing hides what patching costs: nobody waits for a wakeup, there is no polling to win by.
    # It is also the only place where 3 % can be told from noise within seconds.
    *foreign("foreign", "foreign peer, one CPU", settings=NO_POLLING, cpus=TOGETHER),
    *foreign("foreign-polling", "foreign peer, polling", cpus=SERVER),
    Work("idle-memory", "idle connection, both ends", RESIDENT, {"loop": "idle"}, limit=32, measured_by="idle"),
    Work("idle-cpu", "idle connections, CPU used", CPU, {"loop": "idle"}, limit=0, measured_by="idle"),
    *asyncio_works("uvloop"),
    *asyncio_works("asyncio"),
)

CURVE_SIZES = tuple(4**power for power in range(1, 11))  # 4 B .. 1 MiB
CURVE_PATHS = ("fastsock ring", "kernel TCP", "unix socket")
CURVE_READINGS = {"latency": HALF_ROUND_TRIP, "bandwidth": BANDWIDTH}


@attrs.frozen
class Plan:
    """How long everything is measured; `seconds` and `slice_seconds` are of timed work per sample."""

    runs: int = 5
    seconds: float = 0.4
    slices: int = 60  # pairs of slices per run
    slice_seconds: float = 0.01
    idle_connections: int = 200
    idle_seconds: float = 2.0
    curve_runs: int = 5
    curve_seconds: float = 0.03

    @classmethod
    def quick(cls) -> Plan:
        return cls(runs=3, seconds=0.07, slices=8, idle_connections=100, idle_seconds=0.5, curve_runs=1)
