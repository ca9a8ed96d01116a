"""fastsock's counters of a process for Prometheus: call `export()` in your program, or run this one to see them.

fastsock run examples/prometheus_exporter.py --port 9400
curl http://127.0.0.1:9400/metrics
"""

import argparse
import time
from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

import fastsock

UNITS = {"By": "bytes", "s": "seconds"}
"""What Prometheus calls the units of OpenTelemetry; what is counted in braces has none."""


class FastsockCollector(Collector):
    """Reads `fastsock.stats()` anew for each scrape."""

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric in fastsock.stats().metrics():
            family = CounterMetricFamily if metric.grows else GaugeMetricFamily
            labels = sorted({key for attributes, _ in metric.points for key in attributes})
            name = metric.name.replace(".", "_")
            unit = UNITS.get(metric.unit, "")
            family = family(name, metric.description, labels=[label.replace(".", "_") for label in labels], unit=unit)
            for attributes, value in metric.points:
                family.add_metric([attributes.get(label, "") for label in labels], value)
            yield family


def export(registry: CollectorRegistry = REGISTRY) -> None:
    """From now on the registry has fastsock's counters."""
    registry.register(FastsockCollector())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="port of /metrics (default: the kernel's choice)")
    options = parser.parse_args()
    export()
    server, _ = start_http_server(options.port, addr="127.0.0.1")
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
