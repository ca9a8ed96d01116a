"""`fastsock bench`: measures a server and a client with blocking sockets, alternately on kernel TCP and under fastsock.

For users of an installed package. `./dev bench` in a checkout measures more, and more precisely.
"""

from __future__ import annotations

import json
import os
import socket as stdlib
import subprocess
import sys
import time
from contextlib import suppress
from statistics import median

import attrs

import fastsock
from fastsock import _startup, config
from fastsock.advice import advice_for
from fastsock.tools.checks import busy, remark, started

__all__ = ["WORKS", "Pair", "run", "verdict"]

ROUNDS = 3
PATHS = ("tcp", "ring")
BUSY_SECONDS = 0.3
REQUESTS = (0.1, 0.2, 0.5, 1.0, 5.0, 20.0)
"""Milliseconds that requests of the reader's program may take, for the table of what to expect."""
GRACE = 30.0
"""Seconds that one slice may take in addition to its measurement, to start two interpreters."""


@attrs.frozen
class Work:
    """A workload of the two programs."""

    name: str
    echo: bool
    size: int
    """Bytes of a message."""
    unit: str


WORKS = (
    Work("request, answer of 64 B", True, 64, "round trips/s"),
    Work("request, answer of 4 KiB", True, 4096, "round trips/s"),
    Work("stream of 64 B sends", False, 64, "messages/s"),
    Work("stream of 64 KiB sends", False, 65536, "messages/s"),
)


@attrs.frozen
class Pair:
    """The medians of one workload: speed in its unit, and CPU time of both ends per message in microseconds."""

    work: Work
    tcp: float
    ring: float
    tcp_cpu: float
    ring_cpu: float
    reason: str
    """Why the client's connection stayed on kernel TCP under fastsock; "" if it was on the ring."""

    @property
    def ratio(self) -> float:
        return self.ring / self.tcp


# ---- the two programs --------------------------------------------------------------------------------------


def serve(work: Work) -> None:
    """Prints the port, serves one connection, and prints the CPU time of this process."""
    with stdlib.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(max(work.size, 1 << 16)))
    with connection, suppress(ConnectionError):  # the client was interrupted
        if work.echo:
            while whole(connection, buffer[: work.size]):
                connection.sendall(buffer[: work.size])
        else:
            while connection.recv_into(buffer):
                pass
            connection.sendall(b"!")  # all of it was read
    print(time.process_time(), flush=True)


def whole(connection: stdlib.socket, buffer: memoryview) -> bool:
    """Fills `buffer`. Returns false at the end of the stream."""
    while buffer:
        got = connection.recv_into(buffer)
        if not got:
            return False
        buffer = buffer[got:]
    return True


def use(work: Work, port: int, seconds: float) -> None:
    """Prints messages per second, the CPU time of this process, the number of messages, the path and its reason."""
    with stdlib.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY, 1)
        message, buffer = b"x" * work.size, memoryview(bytearray(work.size))
        before, began, count, measured = time.process_time(), time.monotonic(), 0, 0
        ends = began + seconds
        warm = began + seconds / 4  # until then the connection may look for its peer
        while (now := time.monotonic()) < ends:
            if not measured and now >= warm:
                began, measured = now, count
            for _ in range(16):
                connection.sendall(message)
                if work.echo and not whole(connection, buffer):
                    raise ConnectionError("the server has ended")
            count += 16
        path = fastsock.path_of(connection)
        if not work.echo:
            connection.shutdown(stdlib.SHUT_WR)
            connection.recv(1)
        spent = time.monotonic() - began
    speed = (count - measured) / spent
    print(json.dumps([speed, time.process_time() - before, count, path.path, path.reason]), flush=True)


# ---- measuring ---------------------------------------------------------------------------------------------


def slice_of(work: int, path: str, seconds: float) -> tuple[float, float, str, str]:
    """Runs both programs once. Returns messages per second, CPU time per message in microseconds, path and reason.

    Raises RuntimeError if a program fails."""
    environment = dict(os.environ)
    if path == "ring":
        environment = _startup.environment(environment, config.from_environment())
    else:
        environment.pop(_startup.RUN, None)
    command = [sys.executable, "-m", "fastsock.tools.quickbench"]
    with started([*command, "serve", str(work)], environment) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        if not port:
            raise RuntimeError("the server did not start")
        try:
            with started([*command, "use", str(work), port, str(seconds)], environment) as client:
                said, _ = client.communicate(timeout=seconds + GRACE)
            if client.returncode:
                raise RuntimeError("the client failed")
            speed, spent, count, taken, reason = json.loads(said)
            spent += float(server.stdout.readline())
        except (subprocess.TimeoutExpired, ValueError) as error:
            raise RuntimeError(f"no measurement: {error}") from error
    return speed, spent / max(count, 1) * 1e6, taken, reason


def measure(number: int, seconds: float) -> Pair:
    """Measures both paths alternately, ROUNDS times, `seconds` each."""
    found: dict[str, list[tuple[float, float, str, str]]] = {path: [] for path in PATHS}
    for _ in range(ROUNDS):
        for path in PATHS:
            found[path].append(slice_of(number, path, seconds))
    stayed = [reason for *_, taken, reason in found["ring"] if taken != "ring"]
    speeds = {path: median(one[0] for one in found[path]) for path in PATHS}
    spent = {path: median(one[1] for one in found[path]) for path in PATHS}
    return Pair(WORKS[number], speeds["tcp"], speeds["ring"], spent["tcp"], spent["ring"], stayed[0] if stayed else "")


def run(seconds: float, as_json: bool) -> int:
    """Measures for about `seconds` and prints the result. Warns on stderr if the host is busy. Returns 1 if a
    connection stayed on kernel TCP, else 0. Raises RuntimeError as `slice_of` does, and SettingError."""
    config.active()
    if said := remark(busy(BUSY_SECONDS)):
        print(said, file=sys.stderr, flush=True)
    each = max(seconds / (len(WORKS) * len(PATHS) * ROUNDS) - 0.4, 0.2)  # two interpreters start in 0.4 s
    pairs = []
    for number, work in enumerate(WORKS):
        pair = measure(number, each)
        pairs.append(pair)
        if not as_json:
            if not number:
                print(f"{'':24} {'kernel TCP':>11} {'fastsock':>11}{'':15} {'ratio':>6}  CPU, us", flush=True)
            print(
                f"{work.name:24} {pair.tcp:>11,.0f} {pair.ring:>11,.0f} {work.unit:14} {pair.ratio:>5.1f}x "
                f"{pair.tcp_cpu:>4.1f} {pair.ring_cpu:>4.1f}",
                flush=True,
            )
    if as_json:
        print(json.dumps([{**attrs.asdict(pair), "ratio": pair.ratio} for pair in pairs], indent=2))
    else:
        print("\n" + verdict(pairs))
    return int(any(pair.reason for pair in pairs))


def verdict(pairs: list[Pair]) -> str:
    """Returns the conclusion as text."""
    stayed = [pair.reason for pair in pairs if pair.reason]
    if stayed:
        return f"A connection stayed on kernel TCP: {stayed[0]}.\n{advice_for(stayed[0])}\nSee `fastsock doctor`."
    echo = [pair for pair in pairs if pair.work.echo]
    stream = [pair.ratio for pair in pairs if not pair.work.echo]
    said = [
        f"Programs that wait for small answers: {_words([pair.ratio for pair in echo])}.",
        f"Programs that stream: {_words(stream)}.",
        "This is the transport alone, without what a program computes.",
    ]
    if len(os.sched_getaffinity(0)) == 1:
        said.append("This host has one CPU: with two the gain is larger, since a wait can then poll.")
    return "\n".join([*said, "", expectation(echo[0]), "", "`fastsock doctor -- PROGRAM` says which connections move."])


def expectation(pair: Pair) -> str:
    """What a request of the reader's program can gain here at best: the time that its messages take is saved, and
    nothing of the rest."""
    on_tcp, on_ring = 1e6 / pair.tcp, 1e6 / pair.ring
    saved = max(on_tcp - on_ring, 0.0)
    lengths = [f"{length * 1000:,.0f} us" if length < 1 else f"{length:,.0f} ms" for length in REQUESTS]
    best = [f"{length * 1000 / (length * 1000 - saved):.2f}x" if length * 1000 > on_tcp else "-" for length in REQUESTS]
    return "\n".join(
        [
            f"A request and its answer take {on_tcp:.0f} us on kernel TCP here, with its wakeups,",
            f"and {on_ring:.1f} us on the ring: {saved:.0f} us less. So a request that takes your client",
            "  " + "".join(f"{length:>10}" for length in lengths),
            "on kernel TCP, on a kept connection, gets faster by at most",
            "  " + "".join(f"{ratio:>10}" for ratio in best),
        ]
    )


def _words(ratios: list[float]) -> str:
    low, high = min(ratios), max(ratios)
    if high < 1.1:
        return f"no gain here ({low:.1f}x to {high:.1f}x)"
    return f"{low:.1f} to {high:.1f} times as fast as on kernel TCP"


if __name__ == "__main__":
    _, what, index, *rest = sys.argv
    if what == "serve":
        serve(WORKS[int(index)])
    else:
        use(WORKS[int(index)], int(rest[0]), float(rest[1]))
