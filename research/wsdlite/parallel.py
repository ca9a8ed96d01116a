"""Parallel programs of two workers over a socket: `parallel.py fft|lu|barnes-hut SIZE`. Prints one JSON object.

    fft         3-D FFT of SIZE^3 points by slabs; the transpose is an all-to-all
    lu          blocked LU of a SIZE x SIZE matrix, blocks of 16, columns of blocks dealt out in turn
    barnes-hut  a step of SIZE bodies under gravity by an octree; the workers exchange the positions

Worker 0 starts worker 1. The result is checked against one computed by worker 0 alone. Ordinary programs; they do not
know about fastsock.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.wsdlite.octree import accelerations

Array = NDArray[Any]
BLOCK = 16
STEPS = 2


class Peer:
    """The connection to the other worker, and the seconds spent on it."""

    def __init__(self, sock: socket.socket, rank: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.rank, self.seconds = sock, rank, 0.0

    def send(self, array: Array) -> None:
        start = time.perf_counter()
        self.sock.sendall(memoryview(np.ascontiguousarray(array)).cast("B"))
        self.seconds += time.perf_counter() - start

    def receive(self, like: Array) -> Array:
        start = time.perf_counter()
        into = np.empty(like.shape, like.dtype)
        view, got = memoryview(into).cast("B"), 0
        while got < len(view):
            part = self.sock.recv_into(view[got:])
            if not part:
                raise ConnectionError("the other worker has gone")
            got += part
        self.seconds += time.perf_counter() - start
        return into

    def exchange(self, mine: Array, like: Array) -> Array:
        """Sends `mine` and gives what the other sent; worker 0 sends first."""
        if self.rank == 0:
            self.send(mine)
            return self.receive(like)
        theirs = self.receive(like)
        self.send(mine)
        return theirs


# --- 3-D FFT ------------------------------------------------------------------------------------------------


def fft(peer: Peer, size: int) -> Array:
    """This worker's half, along the second axis, of the transform."""
    whole, half = field(size), size // 2
    mine = whole[peer.rank * half : (peer.rank + 1) * half]
    for _ in range(STEPS):
        planes = np.fft.fftn(mine, axes=(1, 2))
        kept = planes[:, peer.rank * half : (peer.rank + 1) * half]
        given = planes[:, (1 - peer.rank) * half : (2 - peer.rank) * half]
        come = peer.exchange(given, given)
        pieces = (kept, come) if peer.rank == 0 else (come, kept)
        turned = np.fft.fft(np.concatenate(pieces), axis=0)
    return turned


def field(size: int) -> Array:
    random = np.random.default_rng(1)
    return random.standard_normal((size, size, size)) + 1j * random.standard_normal((size, size, size))


def check_fft(result: Array, size: int) -> bool:
    return bool(np.allclose(result, np.fft.fftn(field(size))[:, : size // 2]))


# --- blocked LU -----------------------------------------------------------------------------------------------


def matrix(size: int) -> Array:
    """Diagonally dominant: no pivots are needed."""
    return np.random.default_rng(2).standard_normal((size, size)) + size * np.eye(size)


def lu(peer: Peer, size: int) -> Array:
    """L below the diagonal, U on and above it; only this worker's columns of blocks are right."""
    a = matrix(size)
    for step in range(size // BLOCK):
        k, end = step * BLOCK, (step + 1) * BLOCK
        panel = a[k:, k:end]
        if step % 2 == peer.rank:
            for column in range(BLOCK):
                panel[column + 1 :, column] /= panel[column, column]
                panel[column + 1 :, column + 1 :] -= np.outer(panel[column + 1 :, column], panel[column, column + 1 :])
            peer.send(panel)
        else:
            panel[:] = peer.receive(panel)
        lower = np.tril(panel[:BLOCK], -1) + np.eye(BLOCK)
        for block in range(step + 1, size // BLOCK):
            if block % 2 == peer.rank:
                columns = slice(block * BLOCK, (block + 1) * BLOCK)
                a[k:end, columns] = np.linalg.solve(lower, a[k:end, columns])
                a[end:, columns] -= panel[BLOCK:] @ a[k:end, columns]
    return a


def check_lu(result: Array, size: int) -> bool:
    """Every panel was sent, so the whole L is here; U is in the columns of blocks that are this worker's."""
    lower = np.tril(result, -1) + np.eye(size)
    product = lower @ np.triu(result)
    own = np.arange(size) // BLOCK % 2 == 0
    return bool(np.allclose(product[:, own], matrix(size)[:, own]))


# --- Barnes-Hut -----------------------------------------------------------------------------------------------


def bodies(size: int) -> Array:
    return np.random.default_rng(3).standard_normal((size, 3))


def barnes_hut(peer: Peer, size: int) -> Array:
    places = bodies(size)
    speeds = np.zeros((size // 2, 3))
    half = slice(peer.rank * size // 2, (peer.rank + 1) * size // 2)
    other = slice((1 - peer.rank) * size // 2, (2 - peer.rank) * size // 2)
    for _ in range(STEPS):
        speeds += 1e-3 * accelerations(places, places[half])
        places[half] += 1e-3 * speeds
        places[other] = peer.exchange(places[half], places[other])
    return places


def check_barnes_hut(result: Array, size: int) -> bool:
    places, speeds = bodies(size), np.zeros((size, 3))
    for _ in range(STEPS):
        speeds += 1e-3 * accelerations(places, places)
        places = places + 1e-3 * speeds
    return bool(np.array_equal(places, result))


PROGRAMS = {"fft": (fft, check_fft), "lu": (lu, check_lu), "barnes-hut": (barnes_hut, check_barnes_hut)}


def work(peer: Peer, name: str, size: int) -> tuple[Array, dict[str, float]]:
    """Runs the program once to warm up (and to let the connection settle), then timed."""
    for _ in range(20):
        peer.exchange(np.zeros(1), np.zeros(1))
    PROGRAMS[name][0](peer, size)
    peer.exchange(np.zeros(1), np.zeros(1))
    peer.seconds, cpu, start = 0.0, time.process_time(), time.perf_counter()
    result = PROGRAMS[name][0](peer, size)
    seconds = time.perf_counter() - start
    times = {"seconds": seconds, "communicating": peer.seconds, "computing": seconds - peer.seconds,
             "utilisation": (time.process_time() - cpu) / seconds}  # fmt: skip
    return result, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("size", type=int)
    parser.add_argument("--port", type=int, help="of worker 0: this is worker 1")
    options = parser.parse_args()
    if options.port:
        with socket.create_connection(("127.0.0.1", options.port)) as sock:
            work(Peer(sock, 1), options.name, options.size)
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = [
            sys.executable,
            "-m",
            "research.wsdlite.parallel",
            options.name,
            str(options.size),
            "--port",
            str(port),
        ]
        with subprocess.Popen(words) as worker, listener.accept()[0] as sock:
            result, times = work(Peer(sock, 0), options.name, options.size)
    if worker.returncode:
        raise SystemExit(f"worker 1 ended with {worker.returncode}")
    if not PROGRAMS[options.name][1](result, options.size):
        raise SystemExit("the result is wrong")
    print(json.dumps(times))


if __name__ == "__main__":
    main()
