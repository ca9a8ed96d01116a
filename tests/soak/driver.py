"""A run: starts the workers, does things to them, collects what they say, and looks at what is left."""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.soak import handing, processes, watch
from tests.soak.containers import Bridge
from tests.soak.faults import Faults
from tests.soak.judge import Judge
from tests.soak.processes import MARK, Worker

SERVERS = ("sockets", "sockets", "asyncio", "uvloop", "trio")
CLIENTS = ("sockets", "uvloop", "sockets", "asyncio", "trio", "sockets")
ROLES = ("server", "client")
PICTURES = 5
"""How many findings of a run have their pictures taken."""
SETTLE = 30.0
"""Seconds that everything may take to be gone after the last worker."""


class Driver:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.run = f"{os.getpid()}-{time.time_ns()}"
        self.out = Path(options.out or tempfile.mkdtemp(prefix="fastsock-chaos-"))
        self.out.mkdir(parents=True, exist_ok=True)
        self.findings: list[str] = []
        self.troubles: list[str] = []
        self.judge = Judge(self.finding)
        self.lines: queue.SimpleQueue[tuple[Worker, dict[str, Any]]] = queue.SimpleQueue()
        self.workers: dict[str, Worker] = {}
        self.spoken: set[int] = set()
        self.generations: dict[str, int] = {}
        self.variables = self._variables()
        number = os.getpid() % 60_000
        own = f"127.77.{number // 250 + 1}.{number % 250 + 1}"  # nobody else's connections come here
        self.bridge = Bridge() if options.containers else None
        self.hosts = {role: self.bridge.containers[role].address if self.bridge else own for role in ROLES}
        if self.bridge:
            self.variables |= self.bridge.variables
        self.servers = self._draw_servers()
        self.faults = Faults(self, self.rng)

    def _variables(self) -> dict[str, str]:
        options = self.options
        variables = {**os.environ, MARK: self.run, "CHAOS_OUT": str(self.out), "PYTHONUNBUFFERED": "1"}
        variables["CHAOS_FORK"] = "1" if options.fork else "0"
        variables["CHAOS_URGENT"] = "1" if options.urgent else "0"
        variables["CHAOS_SIZE"] = str(options.size)
        variables["CHAOS_PROGRAMS"] = " ".join(options.programs)
        variables["CHAOS_PATIENCE"] = str(watch.PATIENCE)
        if options.key is not None:
            variables["CHAOS_KEY"] = str(options.key)
        if options.plain:
            variables["FASTSOCK_ENABLED"] = "0"
        return variables

    def settings(self, seed: str) -> dict[str, str]:
        """The settings of a worker, as variables. Both ends need not have the same."""
        rng = random.Random(f"{self.options.seed} settings {seed}")
        eager = self.options.eager or (not self.options.default and rng.random() < 0.6)
        settings = {"FASTSOCK_MOVE_AFTER": "0", "FASTSOCK__MEETING_MS": "20"} if eager else {}
        if rng.random() < 0.2:
            settings["FASTSOCK_POLL_US"] = "0"
        if rng.random() < 0.1:
            settings |= {"FASTSOCK_WINDOW": "4", "FASTSOCK_ACK_THRESHOLD": "2"}
        if rng.random() < 0.1:
            settings["FASTSOCK_MEMORY_CAP"] = str(rng.choice([0, 2_105_344, 10_000_000]))
        return {**self.variables, **settings}

    def _kinds(self, kinds: tuple[str, ...], count: int) -> list[str]:
        wanted = {name.partition("/")[0] for name in self.options.programs}
        offered = [kind for kind in kinds if not wanted or kind in wanted] or sorted(wanted)
        return [offered[index % len(offered)] for index in range(count)]

    def _draw_servers(self) -> list[dict[str, Any]]:
        servers = []
        kinds = self._kinds(SERVERS, len(SERVERS)) if not self.options.kinds else [self.options.kinds[1]] * 2
        for index, kind in enumerate(kinds):
            while True:  # (not among the numbers that the kernel gives to clients)
                port = self.rng.randrange(20_000, 30_000)
                try:
                    if not self.bridge:
                        socket.create_server((self.hosts["server"], port)).close()
                    break
                except OSError:
                    continue
            servers.append({"slot": f"server{index}", "kind": kind, "host": self.hosts["server"], "port": port})
        return servers

    # ---- what is told ------------------------------------------------------------------------------------

    def finding(self, text: str) -> None:
        self.findings.append(text)
        print(f"FOUND {len(self.findings)}: {text[:1800]}", flush=True)
        if len(self.findings) <= PICTURES:
            self.take_pictures(text[:500])

    def take_pictures(self, what: str) -> None:
        try:
            processes.take_pictures(self.run, self.spoken, set(self.hosts.values()), self.out, what)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"chaos: no pictures: {error!r}", flush=True)

    def listen(self, seconds: float) -> None:
        """Hears the workers for a while."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            try:
                worker, line = self.lines.get(timeout=rest)
            except queue.Empty:
                return
            self.hear(worker, line)

    def hear(self, worker: Worker, line: dict[str, Any]) -> None:
        self.spoken.add(line["pid"])
        match line["what"]:
            case "alive":
                if line["pid"] == worker.own_pid:
                    worker.alive = time.monotonic()
            case "begin":
                self.judge.begin(line)
            case "refused":
                self.judge.no_connection(line)
            case "end":
                self.judge.end(line)
            case "bye":
                worker.bye = line
                if line["sockets"] or line["endpoints"] or line["regions"] > 100:
                    self.finding(f"{line['slot']} still holds when all its connections have ended: {line}")
            case "died":
                self.finding(f"a process forked by {line['slot']} ended with {line['status']}: {line}")
            case "trouble":
                self.troubles.append(f"{line['slot']}: {line['detail']}")

    # ---- workers -----------------------------------------------------------------------------------------

    def start(self, role: str, slot: str, words: dict[str, Any]) -> None:
        generation = self.generations[slot] = self.generations.get(slot, -1) + 1
        seed = f"{self.options.seed} {slot} {generation}"
        if role == "client":
            words = {**words, "seed": seed}
        container = self.bridge.containers[role] if self.bridge else None
        worker = self.workers[slot] = Worker(role, slot, words, self.settings(seed), self.out, container)
        worker.read_into(self.lines)

    def look_after(self) -> None:
        """Starts workers again that were killed; one that died by itself, or says nothing, is a finding."""
        for slot, worker in list(self.workers.items()):
            if worker.runs and time.monotonic() - worker.alive > watch.PATIENCE + 5:
                self.finding(f"worker {slot} pid {worker.pid} has said nothing for {watch.PATIENCE + 5:.0f} s")
                self.listen(1)
                worker.expected = True
                self.judge.killed(slot)
                worker.signal_group(9)
            if worker.runs:
                continue
            code = worker.process.wait()
            if not worker.expected:
                self.finding(f"worker {slot} pid {worker.pid} died with status {code}; see stderr-{slot}.txt")
                self.judge.killed(slot)
            self.start(worker.role, slot, {k: v for k, v in worker.words.items() if k != "seed"})

    def begin(self) -> None:
        handing.certificate(self.out)
        for server in self.servers:
            self.start("server", server["slot"], {k: v for k, v in server.items() if k != "slot"})
        self.listen(1.5)
        kinds = self._kinds(CLIENTS, self.options.clients)
        if self.options.kinds:
            kinds = [self.options.kinds[0]] * self.options.clients
        for index, kind in enumerate(kinds):
            words = {"kind": kind, "servers": self.servers, "host": self.hosts["client"], "lanes": self.options.lanes}
            self.start("client", f"client{index}", words)

    def carry_on(self) -> None:
        until = time.monotonic() + self.options.seconds
        strike = time.monotonic() + 2
        while time.monotonic() < until and len(self.findings) < self.options.most:
            self.listen(0.1)
            self.look_after()
            self.faults.take_back()
            if self.options.faults and time.monotonic() > strike:
                self.faults.strike()
                strike = time.monotonic() + self.rng.uniform(0.2, 1.8) * self.options.pace

    def stop(self, role: str) -> None:
        """Lets the workers of a role carry their connections to their ends, and look at what they hold."""
        stopping = [worker for worker in self.workers.values() if worker.role == role]
        for worker in stopping:
            worker.tell("stop")
        until = time.monotonic() + watch.LONGEST + watch.PATIENCE
        while any(worker.runs for worker in stopping) and time.monotonic() < until:
            self.listen(0.1)
        self.listen(0.3)
        for worker in stopping:
            if worker.runs:
                self.finding(f"worker {worker.slot} pid {worker.pid} does not end")
                self.listen(2)
                worker.signal_group(9)
            elif worker.bye is None and not worker.expected:
                self.finding(
                    f"worker {worker.slot} pid {worker.pid} ended with {worker.process.wait()} and no last word"
                )

    def finish(self) -> None:
        self.faults.take_back(everything=True)
        for worker in self.workers.values():
            worker.signal_group(18)  # SIGCONT
        self.stop("client")
        until = time.monotonic() + watch.PATIENCE + 10  # forked children and helpers may still carry connections
        while self.judge.waited_for() and time.monotonic() < until:
            self.listen(0.2)
        if self.judge.waited_for():
            self.take_pictures(f"no more is heard of {self.judge.waited_for()} connections")
            self.listen(1)
        self.stop("server")
        for text in processes.leftovers(self.run, self.names, SETTLE):
            self.finding(text)
        self.listen(0.2)
        self.judge.close()

    def names(self) -> list[str]:
        """Names of fastsock's that are still there."""
        return self.bridge.left() if self.bridge else processes.names_of(self.hosts["client"])

    def carry_out(self) -> int:
        print(f"chaos: seed {self.options.seed}, {self.options.seconds:.0f} s, in {self.out}", flush=True)
        try:
            self.begin()
            self.carry_on()
            self.finish()
        finally:
            self.faults.take_back(everything=True)
            for worker in self.workers.values():
                if worker.runs:
                    worker.signal_group(9)
                worker.process.wait()
            # (What an ended worker has left is found by its mark: its number, and so its group's, may be a stranger's.)
            for pid, _, _ in processes.of_run(self.run):
                processes.send_signal(pid, 9)
            if self.bridge:
                self.bridge.close()
        return self.conclude()

    def record(self, kills: int) -> None:
        """Adds a line of numbers to a file."""
        judge = self.judge
        numbers = {
            "seed": self.options.seed, "seconds": self.options.seconds, "connections": judge.connections,
            "moved": judge.moved, "refused": judge.refused, "bytes": judge.bytes, "kills": kills,
            "faults": sum(self.faults.counts.values()), "findings": len(self.findings),
        }  # fmt: skip
        with self.options.json.open("a") as file:
            print(json.dumps(numbers), file=file)

    def conclude(self) -> int:
        judge = self.judge
        struck = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.counts.items())) or "none"
        kills = sum(count for name, count in self.faults.counts.items() if name.startswith("kill"))
        summary = f"{judge.summary()}\n  faults: {struck}; {kills} kills\n"
        for trouble in dict.fromkeys(self.troubles):
            shown = trouble if len(trouble) < 1200 else f"{trouble[:200]} ... {trouble[-1000:]}"
            summary += f"  trouble: {shown}\n"
        if not judge.hows["done"]:
            self.finding("no connection came to its end")
        if not self.options.plain and not judge.moved:
            self.finding("no connection moved to the ring: nothing was tested")
        summary += f"chaos: {len(self.findings)} findings"
        print(summary, flush=True)
        if self.options.json:
            self.record(kills)
        if not self.findings:
            if not self.options.out:
                shutil.rmtree(self.out)
            return 0
        again = shlex.join(["./dev", "chaos", *sys.argv[1:]])
        if "--seed" not in sys.argv:
            again += f" --seed {self.options.seed}"
        text = "\n\n".join([f"repeat: {again}", *self.findings, summary])
        (self.out / "findings.txt").write_text(text)
        print(f"chaos: see {self.out}; repeat: {again}", flush=True)
        return 1
