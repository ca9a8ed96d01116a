"""`./dev demo`: three ordinary pairs of programs on kernel TCP and under fastsock, side by side, and what to try next.

The programs (`bench/programs/scripts`) know nothing of fastsock: what differs is whether they are started by `python`
or by `fastsock run`. Both pairs of a row are alive at once and work in short slices by turns, so that what
else the machine does happens to both. The exit status is 0 when every row was measured and its connections took the
ring, whatever the ratios, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

try:
    from rich.console import Console
    from rich.markup import escape
    from rich.status import Status
    from rich.table import Table
except ImportError:
    sys.exit("The demo needs rich: pip install '.[demo]', or ./dev demo")

from bench.programs.measure import measure
from bench.programs.pair import FASTSOCK, PLAIN
from bench.programs.plan import Plan
from bench.programs.results import PROBE, Result
from bench.programs.rows import FREE, Row, python
from bench.report import three_digits
from fastsock import config
from fastsock.advice import advice_for
from fastsock.path_events import DISABLED
from fastsock.tools.checks import busy, remark

BUSY_SECONDS = 0.3
TABLE_WIDTH = 118  # columns, where the output is not a terminal
STAYS = 0.75  # of the plain pair's CPU time left under fastsock: above it a program is one that computes

SILENT = "the programs told of no connection at all"

HTTP = Row(
    "http",
    "http.server and http.client\n1 KiB, one kept connection",
    (python("wsgi_server.py http.server {port}"),),
    python("http_client.py http.client-kept {port}"),
)
RPC = Row(
    "rpc",
    "asyncio streams, JSON calls\n4 callers",
    (python("streams_rpc.py server {port}"),),
    python("streams_rpc.py client {port} 4"),
)
FEED = Row(
    "stream",
    "blocking sockets, a stream of\n4 KiB records",
    (python("feed.py server {port} 4096"),),
    python("feed.py client {port} 4096"),
)
ROWS = {HTTP: "request", RPC: "call", FEED: "record"}
"""The rows, and what one operation of each is called."""

NEXT = """\
What to try next, here in the checkout (the programs of .venv/bin are fastsock's own commands):
  .venv/bin/fastsock doctor                     what helps and what is in the way on this host
  .venv/bin/fastsock doctor -- python app.py    which connections of your program move, and what to do about the others
  .venv/bin/fastsock run app.py                 your program on the ring; start both ends so
  docs/tutorial.md                              ends with measured numbers of your own program; or: ./dev docs serve
  docs/recipes.md                               uvicorn, FastAPI, aiohttp, tornado, trio, Dask, rpyc and others"""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev demo", description="Three pairs of programs, side by side.")
    parser.add_argument("--slices", type=int, default=6, help="slices of each pair (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a slice (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.slices < 1 or options.seconds <= 0:
        parser.error("--slices must be at least 1 and --seconds above 0")
    return options


# ---- what a result says ------------------------------------------------------------------------------------


def stayed(result: Result) -> str | None:
    """Why no connection of the pair under fastsock took the ring; None if one did."""
    if any(stats["connections_ring"] for stats in result.stats.values()):
        return None
    reasons = {reason for stats in result.stats.values() for reason in stats["fallback_reasons"]}
    if told := sorted(reasons - set(PROBE)) or sorted(reasons):
        return told[0]
    return SILENT if config.from_environment().enabled else DISABLED


def cells(result: Result) -> list[str]:
    """A row of the table."""
    ratio = result.ratio()
    if result.problem is not None or ratio is None:
        return [result.row.program, *["-"] * 4, "failed"]
    reason = stayed(result)
    return [
        result.row.program,
        f"{result.rate(PLAIN):,.0f}",
        f"{result.rate(FASTSOCK):,.0f}",
        f"{ratio.median:.2f}x\n{ratio.first:.2f} to {ratio.third:.2f}",
        f"{three_digits(result.cpu(PLAIN) * 1e6)} us to {three_digits(result.cpu(FASTSOCK) * 1e6)} us",
        "TCP > ring" if reason is None else "TCP > TCP",
    ]


def table(results: list[Result]) -> Table:
    drawn = Table(
        title="the same programs on kernel TCP (python ...) and under fastsock (fastsock run ...)",
        caption="ratio: median and quartiles of neighbouring slices; CPU time: of both ends together",
        show_lines=True,
    )
    for heading in ("programs", "kernel TCP\nper second", "fastsock\nper second", "ratio"):
        drawn.add_column(heading, justify="left" if heading == "programs" else "right", no_wrap=True)
    drawn.add_column("CPU time\nof one operation", justify="right", no_wrap=True)
    drawn.add_column("path", no_wrap=True)
    for result in results:
        drawn.add_row(*map(escape, cells(result)))
    return drawn


def where_the_time_goes(result: Result) -> str:
    """One line: the CPU time of an operation on both paths, how much of it the kernel takes, and what follows."""
    shares = {kind: result.system_share(kind) for kind in (PLAIN, FASTSOCK)}
    if result.problem is not None or None in shares.values():
        return f"  {result.row.name:7}not measured"
    micros = {kind: three_digits(result.cpu(kind) * 1e6) for kind in shares}
    took = f"{micros[PLAIN]} us of CPU time, {shares[PLAIN]:.0%} of it in the kernel"
    left = f"{micros[FASTSOCK]} us, {shares[FASTSOCK]:.0%} in the kernel"
    stays = (result.cpu_ratio() or 0) > STAYS
    verdict = "most of it is Python's own work, which stays" if stays else "much of it was the transport"
    return f"  {result.row.name:7}a {ROWS[result.row]} takes {took}; under fastsock {left}: {verdict}"


def told(results: list[Result]) -> list[str]:
    """What is said below the table."""
    lines = ["Where the time goes:", *map(where_the_time_goes, results)]
    for result in results:
        if result.problem is not None:
            lines += ["", f"{result.row.name} FAILED: {result.problem}"]
        elif (reason := stayed(result)) is not None:
            lines += ["", f"{result.row.name}: no connection took the ring: {reason}."]
            lines += [f"  {advice_for(reason)}"] if reason != SILENT else []
            lines.append("  .venv/bin/fastsock doctor says what is in the way on this host.")
    return lines


# ---- the command -------------------------------------------------------------------------------------------


def main() -> int:
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that what was started is ended
    plan = Plan(rounds=1, slices=options.slices, seconds=options.seconds, calls=False)
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)
    if said := remark(busy(BUSY_SECONDS)):
        progress.print(said, style="yellow")
    results, begin = [], monotonic()
    with TemporaryDirectory(prefix="fastsock-demo-") as directory, progress.status("starting") as status:
        for number, row in enumerate(ROWS, 1):
            tell = partial(update, status, f"{number}/{len(ROWS)}  {monotonic() - begin:.0f} s  ")
            results.append(measure(row, FREE, plan, Path(directory), None, tell))
    console.print(table(results))
    console.print("\n".join(["", *told(results), "", NEXT]), markup=False, highlight=False, soft_wrap=True)
    return int(any(result.problem is not None or stayed(result) is not None for result in results))


def update(status: Status, so_far: str, word: str) -> None:
    status.update(so_far + word)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
