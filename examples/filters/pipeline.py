"""A group of filters: starts a process for each copy, connects them, sends queries in, and receives the image.

The client is the visualization filter, the last one of the pipeline.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from streams import ASKED, BUFFER, END, QUERY, Stream, connect, listen

WORKER = Path(__file__).with_name("worker.py")


class Stage:
    """A filter of the pipeline and its copies. `slow`: how many times as long the last copy computes."""

    def __init__(
        self, name: str, copies: int = 1, nanoseconds: float = 0.0, slow: float = 1.0, waits: bool = False
    ) -> None:
        self.name, self.copies, self.nanoseconds, self.slow, self.waits = name, copies, nanoseconds, slow, waits


class Pipeline:
    """Queries go in at the first stage, one after the other; their blocks come out behind the last one."""

    def __init__(self, stages: list[Stage], block: int, schedule: str = "round-robin") -> None:
        self.block, self.unit = block, 0
        self.reports: dict[int, float] = {}  # copy of the last filter: seconds that it computed
        self.processes: list[subprocess.Popen[str]] = []
        listener = listen()
        consumers = [listener.getsockname()[1]]
        for position in reversed(range(len(stages))):  # the consumers of a stage are there before it
            stage = stages[position]
            before = stages[position - 1].copies if position else 1
            order = {
                "filter": stage.name, "waits": stage.waits, "producers": before, "consumers": consumers, "block": block,
                "schedule": schedule if len(consumers) > 1 else "round-robin",
                "acknowledges": position > 0 and schedule == "demand" and stage.copies > 1,
            }  # fmt: skip
            speeds = [1.0] * (stage.copies - 1) + [stage.slow]
            started = [
                self._start({**order, "copy": copy, "nanoseconds": stage.nanoseconds * speed})
                for copy, speed in enumerate(speeds)
            ]
            consumers = [int(process.stdout.readline()) for process in started if process.stdout is not None]
        self.inputs = [connect(port, block) for port in consumers]
        self.outputs = [Stream(listener.accept()[0], block) for _ in range(stages[-1].copies)]
        listener.close()

    def _start(self, order: dict) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, str(WORKER), json.dumps(order)], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def query(self, blocks: range, size: int | None = None) -> float:
        """A unit of work: these blocks, of `size` bytes each. Seconds until the last one is here, checked by its first
        and last byte."""
        self.unit += 1
        size = size or self.block
        self.reports, self.missing = {}, set(blocks)
        start = time.perf_counter()
        threads = [threading.Thread(target=self._receive, args=(stream, size)) for stream in self.outputs[1:]]
        for thread in threads:
            thread.start()
        self._ask(blocks, size)
        self._receive(self.outputs[0], size)
        for thread in threads:
            thread.join()
        if self.missing:
            raise ValueError(f"blocks {sorted(self.missing)[:5]} have not come")
        return time.perf_counter() - start

    def _ask(self, blocks: range, size: int) -> None:
        """Each copy of the first filter is asked for its share, in one frame."""
        copies = len(self.inputs)
        for first, stream in enumerate(self.inputs):
            share = blocks[first::copies]
            if share:
                stream.send(QUERY, self.unit, share.start, ASKED.pack(size, len(share), share.step))
            stream.send(END, self.unit)

    def _receive(self, stream: Stream, size: int) -> None:
        while True:
            kind, unit, number, data = stream.receive()
            if kind == END:
                self.reports[data[0]] = number / 1e6
                return
            if kind != BUFFER or unit != self.unit or len(data) != size:
                raise ValueError(f"a frame of kind {kind} of unit {unit} with {len(data)} bytes")
            if data[0] != number % 256 or data[-1] != (number + size - 1) % 256:
                raise ValueError(f"block {number} is not what the repository has")
            self.missing.discard(number)

    def close(self) -> None:
        for stream in self.inputs:
            stream.sock.shutdown(socket.SHUT_WR)
        for stream in self.outputs:  # their ends come when all units of work are through
            stream.sock.close()
        for process in self.processes:
            if process.wait(20):
                raise RuntimeError(f"a filter ended with status {process.returncode}")
            if process.stdout is not None:
                process.stdout.close()
        for stream in self.inputs:
            stream.sock.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
            return
        for process in self.processes:
            process.kill()
            process.communicate()
