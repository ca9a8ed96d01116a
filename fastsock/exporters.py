"""Gives `fastsock.stats()` to OpenTelemetry or Prometheus. Each needs its own package, which fastsock does not require.

import fastsock.exporters

fastsock.exporters.opentelemetry()  # pip install "fastsock[opentelemetry]"
fastsock.exporters.prometheus()     # pip install "fastsock[prometheus]"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import fastsock

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

__all__ = ["opentelemetry", "prometheus"]

PROMETHEUS_UNITS = {"By": "bytes", "s": "seconds"}
"""What Prometheus calls the units of OpenTelemetry. What is counted in braces has no unit there."""


def _lacks(extra: str, error: ImportError) -> ImportError:
    """What is raised if the packages of an extra are not there."""
    return ImportError(f'{error}: pip install "fastsock[{extra}]"', name=error.name)


def opentelemetry(provider: MeterProvider | None = None) -> None:
    """Makes an observable instrument for each metric of `fastsock.stats()`, in the meter "fastsock".

    `provider` is the application's; by default the global one. Call it once: a second call makes the instruments anew.
    Raises ImportError without the package `opentelemetry-api`."""
    try:
        from opentelemetry.metrics import Observation, get_meter
    except ImportError as error:
        raise _lacks("opentelemetry", error) from error

    def reads(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterator[Observation]:
            for metric in fastsock.stats().metrics():
                if metric.name == name:
                    yield from (Observation(value, dict(attributes)) for attributes, value in metric.points)

        return read

    meter = get_meter("fastsock", fastsock.__version__, meter_provider=provider)
    for metric in fastsock.stats().metrics():
        create = meter.create_observable_counter if metric.grows else meter.create_observable_up_down_counter
        create(metric.name, [reads(metric.name)], metric.unit, metric.description)


def prometheus(registry: CollectorRegistry | None = None) -> None:
    """Registers a collector that reads `fastsock.stats()` at each scrape. Names have underscores in place of dots.

    `registry` is the application's; by default `prometheus_client.REGISTRY`. Raises ImportError without the package
    `prometheus_client`, and ValueError if the registry has the metrics already."""
    try:
        from prometheus_client import REGISTRY
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError as error:
        raise _lacks("prometheus", error) from error

    class FastsockCollector(Collector):
        def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
            for metric in fastsock.stats().metrics():
                family = CounterMetricFamily if metric.grows else GaugeMetricFamily
                keys = sorted({key for attributes, _ in metric.points for key in attributes})
                given = family(
                    metric.name.replace(".", "_"),
                    metric.description,
                    labels=[key.replace(".", "_") for key in keys],
                    unit=PROMETHEUS_UNITS.get(metric.unit, ""),
                )
                for attributes, value in metric.points:
                    given.add_metric([attributes.get(key, "") for key in keys], value)
                yield given

        describe = collect  # the registry then refuses the names a second time

    (REGISTRY if registry is None else registry).register(FastsockCollector())
