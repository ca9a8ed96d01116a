"""The price of a wakeup: what one process waits for the kernel to run another that sleeps."""

from __future__ import annotations

import os
import signal
import time
from statistics import median

BATCHES, ROUND_TRIPS = 20, 100


def price() -> float:
    """Seconds: half a round trip of a byte over pipes, between two processes with a CPU each where there are two. The
    median of some batches."""
    cpus = sorted(os.sched_getaffinity(0))
    (there, to), (back, fro) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.sched_setaffinity(0, {cpus[-1]})
            while os.read(there, 1):
                os.write(fro, b"x")
        finally:
            os._exit(0)
    os.sched_setaffinity(0, {cpus[0]})
    try:
        return median(half_round_trip(to, back) for _ in range(BATCHES))
    finally:
        os.sched_setaffinity(0, cpus)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for fd in (there, to, back, fro):
            os.close(fd)


def half_round_trip(to: int, back: int) -> float:
    began = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        os.write(to, b"x")
        os.read(back, 1)
    return (time.perf_counter() - began) / ROUND_TRIPS / 2
