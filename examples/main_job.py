"""The main job: hello_server.py and hello_client.py, once on kernel TCP and once under fastsock.

Neither program knows about fastsock; what changes is only how the two processes are started: `python x.py`,
or `python -m fastsock run x.py`. The two paths take turns, and the table shows the medians.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent
KERNEL, FASTSOCK = "kernel TCP", "fastsock"
START_DEADLINE, RUN_DEADLINE = 30, 120
"""Seconds a server may take to listen, and a client to finish."""


def command(path: str, script: str, stats: Path) -> list[str]:
    runner = ["-m", "fastsock", "run", "--stats", str(stats)] if path == FASTSOCK else []
    return [sys.executable, *runner, str(EXAMPLES / script)]


@contextmanager
def server(path: str, stats: Path) -> Iterator[str]:
    """The server, for as long as the block runs; gives its HOST:PORT."""
    started = command(path, "hello_server.py", stats)
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(START_DEADLINE, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline()
            watchdog.cancel()
            if not line.startswith("listening on "):
                sys.exit("hello_server.py did not start")
            yield line.removeprefix("listening on ").strip()
        finally:
            watchdog.cancel()
            process.terminate()


def measure(path: str, requests: int) -> dict[str, float]:
    """One run of both programs: what the client measured, and where its connection went."""
    with tempfile.TemporaryDirectory() as scratch:
        stats = Path(scratch, "client.json")
        with server(path, Path(scratch, "server.json")) as address:
            client = [*command(path, "hello_client.py", stats), address, "--requests", str(requests)]
            output = subprocess.run(
                client, stdout=subprocess.PIPE, text=True, check=True, timeout=RUN_DEADLINE
            ).stdout
        result = json.loads(output)
        if path == FASTSOCK:
            counted = json.loads(stats.read_text())
            result |= {"ring": counted["connections_ring"], "kernel": counted["connections_tcp"]}
        else:
            result |= {"ring": 0, "kernel": 1}
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs on each path (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=5000, help="requests a run (default: %(default)s)")
    options = parser.parse_args()

    console = Console()
    runs: dict[str, list[dict[str, float]]] = {KERNEL: [], FASTSOCK: []}
    with console.status("measuring"):
        for _ in range(options.rounds):
            for path, results in runs.items():
                results.append(measure(path, options.requests))

    title = f"http.server and http.client, {options.requests} requests, medians of {options.rounds} runs"
    table = Table("path", title=title)
    for heading in (
        "requests/s",
        "p50\nus",
        "p99\nus",
        "connections\non ring",
        "connections\non kernel",
        "ratio",
    ):
        table.add_column(heading, justify="right")
    baseline = median(result["requests_per_second"] for result in runs[KERNEL])
    for path, results in runs.items():
        speed, p50, p99 = (
            median(result[key] for result in results) for key in ("requests_per_second", "p50_us", "p99_us")
        )
        ring, kernel = (sum(result[key] for result in results) for key in ("ring", "kernel"))
        cells = [f"{speed:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}", f"{ring}", f"{kernel}"]
        table.add_row(path, *cells, f"{speed / baseline:.2f}x")
    console.print(table)
    if sum(result["ring"] for result in runs[FASTSOCK]) != options.rounds:
        sys.exit("under fastsock, a connection stayed on kernel TCP")


if __name__ == "__main__":
    main()
