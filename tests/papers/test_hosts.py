"""Dask distributed on several hosts: two network namespaces stand for them. In one run, the connections within a host
go over the ring and those between hosts over kernel TCP."""

import contextlib
import json

import pytest
from harness.hosts import two_hosts
from harness.processes import FASTSOCK, PLAIN, Server, command, ended

FILTERS = "examples/dask_filters.py"


def test_edges_within_a_host_take_the_ring_and_those_between_hosts_stay_on_tcp(tmp_path):
    def inside(name, what, *words):
        return ["ip", "netns", "exec", name, *command(FASTSOCK, *words, stats=tmp_path / f"{what}.json")]

    with two_hosts() as [(first, address), (second, other)], contextlib.ExitStack() as stack:
        scheduler = f"tcp://{address}:8786"  # in a namespace of its own
        words = ["-m", "distributed.cli.dask_scheduler", "--host", address, "--port", "8786", "--no-dashboard"]
        stack.enter_context(Server(inside(first, "scheduler", *words))).said("Scheduler at:")
        workers = []
        for number, (name, host) in enumerate([(first, address), (first, address), (second, other)]):
            words = ["-m", "distributed.cli.dask_worker", scheduler, "--host", host, "--nthreads", "1"]
            words += ["--no-dashboard", "--no-nanny", "--local-directory", tmp_path]
            workers.append(stack.enter_context(Server(inside(name, f"worker-{number}", *words))))
            workers[-1].said("Starting established connection")
        words = [FILTERS, "--scheduler", scheduler, "--blocks", "40", "--size", "4096"]
        report = json.loads(ended(inside(first, "client", *words)).stdout.splitlines()[-1])
        assert (report["workers"], report["blocks"], report["right"]) == (3, 120, True)
        for worker in workers:
            worker.end()
    near, far = (json.loads((tmp_path / f"worker-{number}.json").read_text()) for number in (0, 2))
    assert near["connections_ring"] > 0, near
    assert far["connections_ring"] == 0, far
    assert far["fallback_reasons"]["peer on another host"] > 0, far


@pytest.mark.parametrize("way", [PLAIN, FASTSOCK])
def test_cluster_on_one_host(way):
    report = json.loads(ended(command(way, FILTERS, "--blocks", "10", "--units", "1", "--size", "1000")).stdout)
    assert (report["workers"], report["blocks"], report["right"]) == (3, 10, True)
