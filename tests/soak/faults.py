"""What the driver does to the processes of a run, drawn from its seed."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.soak.processes import Worker, of_run, send_signal

BRIDGE = "fastsock-bridge"
CAPS = (0, 2_105_344, 6 * 2_105_344, 2**32)
"""Memory caps: none at all, one region, few regions, the default."""


class Faults:
    """Faults come and go: `later` holds what takes them back."""

    def __init__(self, driver: Any, rng: random.Random) -> None:
        self.driver, self.rng = driver, rng
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.counts: dict[str, int] = {}
        self.burners: list[subprocess.Popen[bytes]] = []
        self.weights = {
            self.kill_group: 20, self.kill_leader: 10, self.kill_other: 12, self.kill_bridge: 6, self.stop: 20,
            self.limit_descriptors: 10, self.limit_memory: 8, self.one_processor: 4, self.burn: 4,
        }  # fmt: skip
        if driver.bridge:
            self.weights |= {self.kill_container: 8, self.stop_container: 8}
        if not driver.options.kill:
            for fault in [fault for fault in self.weights if fault.__name__.startswith("kill")]:
                del self.weights[fault]

    # ---- one at a time -----------------------------------------------------------------------------------

    def strike(self) -> None:
        fault = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        self.whom = ""
        if fault():
            self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
            with (self.driver.out / "faults.txt").open("a") as file:
                print(f"{time.monotonic():.3f} {time.strftime('%X')} {fault.__name__} {self.whom}", file=file)

    def take_back(self, everything: bool = False) -> None:
        """Ends the faults whose time is over."""
        now = time.monotonic()
        over = [undo for at, undo in self.later if everything or at <= now]
        self.later = [(at, undo) for at, undo in self.later if not everything and at > now]
        for undo in over:
            undo()

    def _worker(self) -> Worker | None:
        running = [worker for worker in self.driver.workers.values() if worker.runs]
        if not running:
            return None
        worker = self.rng.choice(running)
        self.whom = f"{worker.slot} pid {worker.pid}"
        return worker

    def _others(self, bridges: bool) -> list[tuple[int, str]]:
        """Processes that workers have forked or started: (process id, slot)."""
        leaders = {worker.pid for worker in self.driver.workers.values()}
        return [
            (pid, slot)
            for pid, name, slot in of_run(self.driver.run)
            if pid not in leaders and slot and (name == BRIDGE) == bridges
        ]

    # ---- kills -------------------------------------------------------------------------------------------

    def kill_group(self) -> bool:
        """A worker and all its children (a bridge is none of them)."""
        worker = self._worker()
        if worker is None:
            return False
        worker.expected = True
        self.driver.judge.killed(worker.slot)
        worker.signal_group(signal.SIGKILL)
        return True

    def kill_leader(self) -> bool:
        """A worker alone: what it has forked goes on."""
        worker = self._worker()
        if worker is None:
            return False
        worker.expected = True
        self.driver.judge.killed(worker.slot)
        send_signal(worker.pid, signal.SIGKILL)
        return True

    def _kill_one(self, bridges: bool) -> bool:
        others = self._others(bridges)
        if not others:
            return False
        pid, slot = self.rng.choice(others)
        self.driver.judge.killed(slot)
        self.whom = f"{slot} pid {pid}"
        return send_signal(pid, signal.SIGKILL)

    def kill_other(self) -> bool:
        """A forked holder, or the helper that connections are passed to."""
        return self._kill_one(False)

    def kill_bridge(self) -> bool:
        return self._kill_one(True)

    def kill_container(self) -> bool:
        """All processes of one at once. It comes again, with its address."""
        role = self.rng.choice(list(self.driver.bridge.containers))
        workers = [worker for worker in self.driver.workers.values() if worker.role == role and worker.runs]
        for worker in workers:
            worker.expected = True
            self.driver.judge.killed(worker.slot)
        self.whom = role
        self.driver.bridge.containers[role].restart(lambda: [worker.process.wait() for worker in workers])
        return True

    # ---- stops -------------------------------------------------------------------------------------------

    def stop(self) -> bool:
        """Any process, for up to three seconds."""
        others = self._others(self.rng.random() < 0.3)
        worker = self._worker()
        if worker is None:
            return False
        pid = self.rng.choice(others)[0] if others and self.rng.random() < 0.4 else worker.pid
        if not send_signal(pid, signal.SIGSTOP):
            return False
        self.whom = f"pid {pid}"
        seconds = self.rng.choice([0.01, 0.1, 0.5, 1.5, 3.0])
        self.later.append((time.monotonic() + seconds, lambda: void(send_signal(pid, signal.SIGCONT))))
        return True

    def stop_container(self) -> bool:
        """All its processes, for up to three seconds."""
        role = self.rng.choice(list(self.driver.bridge.containers))
        stopped = [pid for pid, _, slot in of_run(self.driver.run) if slot.startswith(role)]
        stopped = [pid for pid in stopped if send_signal(pid, signal.SIGSTOP)]
        seconds = self.rng.choice([0.01, 0.1, 0.5, 1.5, 3.0])
        self.later += [
            (time.monotonic() + seconds, lambda pid=pid: void(send_signal(pid, signal.SIGCONT)))  # type: ignore[misc]
            for pid in stopped
        ]
        self.whom = role
        return bool(stopped)

    # ---- limits ------------------------------------------------------------------------------------------

    def limit_descriptors(self) -> bool:
        """A worker may open only a few more descriptors, for some seconds."""
        worker = self._worker()
        if worker is None or worker.limit is not None:
            return False
        try:
            highest = max(map(int, os.listdir(f"/proc/{worker.pid}/fd")), default=0)
            used = len(os.listdir(f"/proc/{worker.pid}/fd"))
            before = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
            # (Descriptors above the limit stay open; the next ones take the free numbers below it.)
            room = self.rng.choice([used, used + 2, used + 8, highest + 1])
            resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (max(room, 16), before[1]))
        except OSError:
            return False
        seconds = self.rng.uniform(0.2, 3)
        worker.limit = before
        span = self.driver.judge.limited(worker.slot)

        def restore() -> None:
            worker.limit = None
            try:
                resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, before)
            except OSError:
                pass
            span[1] = time.monotonic() + 1

        self.later.append((time.monotonic() + seconds, restore))
        return True

    def limit_memory(self) -> bool:
        """A worker's memory cap changes: the new one holds until the next."""
        worker = self._worker()
        if worker is None or self.driver.options.plain:
            return False
        worker.tell(f"cap {self.rng.choice(CAPS)}")
        self.later.append((time.monotonic() + self.rng.uniform(0.5, 5), lambda: worker.tell(f"cap {CAPS[-1]}")))
        return True

    # ---- processors --------------------------------------------------------------------------------------

    def one_processor(self) -> bool:
        """All workers on one processor, for some seconds."""
        usable = os.sched_getaffinity(0)
        one = {self.rng.choice(sorted(usable))}

        def put(processors: set[int]) -> None:
            for pid, _, _ in of_run(self.driver.run):
                try:
                    for task in os.listdir(f"/proc/{pid}/task"):
                        os.sched_setaffinity(int(task), processors)
                except OSError:
                    continue

        put(one)
        self.later.append((time.monotonic() + self.rng.uniform(1, 6), lambda: put(usable)))
        return True

    def burn(self) -> bool:
        """Two processes that take all processor time they get."""
        for _ in range(2):
            burner = subprocess.Popen([sys.executable, "-c", "while True: pass"], env=self.driver.variables)
            self.burners.append(burner)

            def end(burner: subprocess.Popen[bytes] = burner) -> None:
                burner.kill()
                burner.wait()

            self.later.append((time.monotonic() + self.rng.uniform(1, 6), end))
        return True


def void(_: object) -> None:
    """Nothing."""
