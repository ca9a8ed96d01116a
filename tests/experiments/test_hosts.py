"""Dask distributed on several hosts: two network namespaces stand for them. In one run, the connections within a host
go over the ring and those between hosts over kernel TCP."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import two_hosts

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60
PORT = 8786  # of the scheduler, in a namespace of its own


@pytest.fixture
def hosts():
    with two_hosts() as both:
        yield both


def inside(name, stats, *words):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FASTSOCK_")}
    environment["FASTSOCK_MOVE_POLLED"] = "1"  # Dask waits for its connections with poll
    run = [sys.executable, "-m", "fastsock", "run", "--stats", str(stats), *words]
    return {"args": ["ip", "netns", "exec", name, *run], "env": environment, "cwd": ROOT}


@contextlib.contextmanager
def running(log, name, stats, *words):
    with log.open("wb") as output:
        process = subprocess.Popen(**inside(name, stats, *words), stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(log, text, count=1):
    deadline = time.monotonic() + DEADLINE
    while log.read_text().count(text) < count:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_edges_within_a_host_take_the_ring_and_those_between_hosts_stay_on_tcp(hosts, tmp_path):
    (first, address), (second, other) = hosts
    scheduler = f"tcp://{address}:{PORT}"
    logs = [tmp_path / f"{number}.log" for number in range(4)]
    places = [(first, address), (first, address), (second, other)]
    with contextlib.ExitStack() as stack:
        words = ["-m", "distributed.cli.dask_scheduler", "--host", address, "--port", str(PORT), "--no-dashboard"]
        stack.enter_context(running(logs[0], first, tmp_path / "scheduler.json", *words))
        wait_for(logs[0], "Scheduler at:")
        for number, (name, host) in enumerate(places):
            words = ["-m", "distributed.cli.dask_worker", scheduler, "--host", host, "--nthreads", "1",
                     "--no-dashboard", "--no-nanny", "--local-directory", str(tmp_path)]  # fmt: skip
            stack.enter_context(running(logs[number + 1], name, tmp_path / f"worker-{number}.json", *words))
            wait_for(logs[number + 1], "Starting established connection")
        words = ["examples/dask_filters.py", "--scheduler", scheduler, "--blocks", "40", "--size", "4096"]
        done = subprocess.run(**inside(first, tmp_path / "client.json", *words), capture_output=True, text=True,
                              timeout=DEADLINE, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        assert (report["workers"], report["blocks"], report["right"]) == (3, 120, True)
    near = json.loads((tmp_path / "worker-0.json").read_text())
    far = json.loads((tmp_path / "worker-2.json").read_text())
    assert near["connections_ring"] > 0, near
    assert far["connections_ring"] == 0, far
    assert far["fallback_reasons"]["peer on another host"] > 0, far


def test_cluster_on_one_host_plain_and_under_fastsock():
    for way in ([], ["-m", "fastsock", "run"]):
        done = subprocess.run(
            [sys.executable, *way, "examples/dask_filters.py", "--blocks", "10", "--units", "1", "--size", "1000"],
            cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        assert (report["workers"], report["blocks"], report["right"]) == (3, 10, True)
