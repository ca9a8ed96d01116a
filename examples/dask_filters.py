"""The pipeline of examples/filters on an engine that others keep: Dask distributed, an actor on each worker.

    python examples/dask_filters.py                               # a cluster of processes on this host
    python examples/dask_filters.py --scheduler tcp://HOST:8786   # workers that run already, on any hosts

Blocks go from actor to actor, over the workers' own connections. An ordinary program; it does not know about fastsock.
"""

import argparse
import hashlib
import json
import time
from statistics import median
from typing import Any

from distributed import Client, LocalCluster

INVERTED = bytes(255 - byte for byte in range(256))


class Repository:
    """The data: makes up blocks."""

    def __init__(self, size: int) -> None:
        self.ramp = bytes(range(256)) * (size // 256 + 2)
        self.size = size

    def block(self, number: int) -> bytes:
        return self.ramp[number % 256 : number % 256 + self.size]


class Transform:
    """Asks the filter before it for a block, and inverts it."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def block(self, number: int) -> bytes:
        return self.source.block(number).result().translate(INVERTED)


class Visualize:
    """The last filter: keeps a digest of what it has shown."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.digest = hashlib.sha256()

    def show(self, first: int, count: int) -> str:
        """One unit of work: blocks are asked for ahead, and shown in order."""
        coming = [self.source.block(number) for number in range(first, first + count)]
        for answer in coming:
            self.digest.update(answer.result())
        return self.digest.hexdigest()


def expected(size: int, count: int) -> str:
    """What the digest has to be, without a pipeline."""
    repository, digest = Repository(size), hashlib.sha256()
    for number in range(count):
        digest.update(repository.block(number).translate(INVERTED))
    return digest.hexdigest()


def run(client: Client, size: int, blocks: int, units: int) -> dict:
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def place(stage: int, kind: type, *arguments: Any) -> Any:
        return client.submit(kind, *arguments, actor=True, workers=[workers[stage % len(workers)]]).result()

    repository = place(0, Repository, size)
    transform = place(1, Transform, repository)
    visualize = place(2, Visualize, transform)
    seconds = []
    for unit in range(units):
        start = time.perf_counter()
        digest = visualize.show(unit * blocks, blocks).result()
        seconds.append(time.perf_counter() - start)
    return {
        "workers": len(workers),
        "blocks": blocks * units,
        "right": digest == expected(size, blocks * units),
        "unit_seconds": round(median(seconds), 6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scheduler", help="address of a running scheduler")
    parser.add_argument("--size", type=int, default=64 << 10, help="bytes of a block (default: 64 KiB)")
    parser.add_argument("--blocks", type=int, default=50, help="of a unit of work")
    parser.add_argument("--units", type=int, default=3)
    options = parser.parse_args()
    if options.scheduler:
        with Client(options.scheduler) as client:
            report = run(client, options.size, options.blocks, options.units)
    else:
        cluster = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
        with cluster, Client(cluster) as client:
            report = run(client, options.size, options.blocks, options.units)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
