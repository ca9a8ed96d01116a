"""The counters under OpenTelemetry's names: complete, described, and exported."""

import re
import sys
import urllib.request
from pathlib import Path

import attrs
import pytest
from harness.pairs import make_pair
from harness.processes import FASTSOCK, Server, command
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

import fastsock
import fastsock.exporters

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("fallback_reasons", "connections_tcp", "poll_ns", "poll_unpaid_ns")  # in other units, or in a sum


pytestmark = pytest.mark.usefixtures("bounded")


def distinct() -> fastsock.Stats:
    """Statistics in which every number is another one."""
    fields = {field.name: number for number, field in enumerate(attrs.fields(fastsock.Stats), 3)}
    fields["fallback_reasons"] = {"one reason": 1001, "another": 1002}
    fields["connections_tcp"] = 2003
    fields["poll_ns"] = 5_000_000_000
    fields["poll_unpaid_ns"] = 4_000_000_000
    return fastsock.Stats(**fields)


def test_every_counter_is_in_one_metric():
    stats = distinct()
    values = sorted(value for metric in stats.metrics() for _, value in metric.points)
    fields = attrs.asdict(stats)
    wanted = [value for name, value in fields.items() if name not in LEFT_OUT]
    assert values == sorted([*wanted, 1001, 1002, 5.0, 4.0])


def test_names_and_units_are_as_opentelemetry_has_them():
    metrics = distinct().metrics()
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert re.fullmatch(r"fastsock(\.[a-z]+)+", metric.name)
        assert re.fullmatch(r"By|s|\{[a-z]+\}", metric.unit)
        assert metric.description
        keys = {frozenset(attributes.items()) for attributes, _ in metric.points}
        assert len(keys) == len(metric.points)


def test_the_page_has_every_field_with_its_metric_and_unit():
    rows = re.findall(
        r"^\| `(\w+)` \| `([\w.]+)` \|.*?\| (\S+) \|", (ROOT / "docs/statistics.md").read_text(), re.MULTILINE
    )
    assert {field for field, _, _ in rows} == {field.name for field in attrs.fields(fastsock.Stats)}
    units = {metric.name: metric.unit for metric in distinct().metrics()}
    assert {(metric, unit) for _, metric, unit in rows} == set(units.items())


def test_what_is_counted_shows_in_the_metrics():
    def sent() -> float:
        (metric,) = (metric for metric in fastsock.stats().metrics() if metric.name == "fastsock.io")
        return next(value for attributes, value in metric.points if "transmit" in attributes.values())

    before = sent()
    with make_pair("ring") as pair:
        pair.near.sendall(b"x" * 100)
        assert sent() - before >= 100


def test_opentelemetry_reads_what_is_counted():
    reader = InMemoryMetricReader()
    fastsock.exporters.opentelemetry(MeterProvider([reader]))
    with make_pair("ring") as pair:
        pair.near.sendall(b"x" * 100)
        (resource,) = reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("fastsock", fastsock.__version__)
    read = {metric.name: metric for metric in scope.metrics}
    for metric in fastsock.stats().metrics():
        got = read[metric.name]
        assert (got.unit, got.description, got.data.is_monotonic) == (metric.unit, metric.description, metric.grows)
        values = {frozenset(point.attributes.items()): point.value for point in got.data.data_points}
        now = {frozenset(attributes.items()): value for attributes, value in metric.points}
        assert values.keys() <= now.keys()
        assert not metric.grows or all(0 <= value <= now[key] for key, value in values.items())
    sent = {point.attributes["network.io.direction"]: point.value for point in read["fastsock.io"].data.data_points}
    assert sent["transmit"] >= 100


def test_prometheus_takes_the_metrics_once():
    registry = CollectorRegistry()
    fastsock.exporters.prometheus(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        fastsock.exporters.prometheus(registry)


def test_prometheus_scrapes_the_example():
    with (
        Server(command(FASTSOCK, "examples/prometheus_exporter.py")) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=20) as answer,
    ):
        text = answer.read().decode()
    for metric in fastsock.stats().metrics():
        name = metric.name.replace(".", "_")
        kind = "counter" if metric.grows else "gauge"
        assert re.search(rf"^# TYPE {name}\w* {kind}$", text, re.MULTILINE), name
    assert 'fastsock_io_bytes_total{network_io_direction="transmit"} ' in text
    assert re.search(
        r'^fastsock_connections\{fastsock_path="tcp",fastsock_reason="too few operations"\} \d', text, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("extra", "package"), [("opentelemetry", "opentelemetry"), ("prometheus", "prometheus_client")]
)
def test_who_lacks_a_package_is_told_the_extra_that_brings_it(extra, package, monkeypatch):
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'pip install "fastsock\[{extra}\]"$'):
        getattr(fastsock.exporters, extra)()
