"""The path of a connection and the statistics of this process, as frozen records.

Loaded at first use, so that a patched program starts without `attrs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

__all__ = ["Metric", "Path", "Stats", "snapshot"]


@attrs.frozen
class Path:
    """The path that a connection's bytes take."""

    path: str
    """Where the bytes go: "ring" (shared memory) or "tcp" (the kernel's TCP)."""
    reason: str
    """Why the connection is in the kernel; for "ring", the directions that have moved."""


@attrs.frozen
class Metric:
    """A metric as OpenTelemetry describes it."""

    name: str
    """The name of the metric, such as "fastsock.io"."""
    unit: str
    """The unit in UCUM: By (bytes), s (seconds), or the counted thing in braces."""
    description: str
    """One line that explains the metric."""
    points: tuple[tuple[Mapping[str, str], float], ...]
    """Pairs of attributes and value."""
    grows: bool = True
    """True for a counter, which never decreases; false for an up-down counter."""


COUNTERS: tuple[tuple[str, str, str, str, dict[str, str]], ...] = (
    ("io", "By", "Payload bytes sent and received on the ring", "network.io.direction",
     {"transmit": "bytes_sent", "receive": "bytes_received"}),
    ("messages", "{message}", "Messages (DATA descriptors) sent and received on the ring", "network.io.direction",
     {"transmit": "messages_sent", "receive": "messages_received"}),
    ("acknowledgements", "{acknowledgement}", "Acknowledgements sent alone or together with data",
     "fastsock.acknowledgement", {"alone": "acks_alone", "piggybacked": "acks_piggybacked"}),
    ("sends.combined", "{send}", "Sends that shared a message", "", {"": "sends_combined"}),
    ("doorbells", "{wakeup}", "Wakeups sent to a sleeping peer", "", {"": "doorbells_rung"}),
    ("polls", "{wait}", "Waits that polled, by success of the polling", "fastsock.poll",
     {"paid": "polls_paid", "unpaid": "polls_unpaid"}),
    ("poll.duration", "s", "Time spent polling", "", {"": "poll_ns"}),
    ("poll.unpaid.duration", "s", "Time spent polling in vain", "", {"": "poll_unpaid_ns"}),
    ("sleeps", "{wait}", "Blocking calls that slept", "", {"": "sleeps"}),
    ("calls", "{call}", "System calls to sleep or to wake the peer", "", {"": "system_calls"}),
)  # fmt: skip
"""Metrics that grow: name, unit, what it is, the attribute, and the field of each of its values."""


@attrs.frozen(kw_only=True)
class Stats:
    """Counters of this process since its start. Each end of a connection counts for itself."""

    connections_ring: int
    """Connections, both connected and accepted, that are or were in shared memory."""
    connections_tcp: int
    """Connections that are in the kernel, or were to their end."""
    fallback_reasons: Mapping[str, int]
    """Number of connections in the kernel for each reason. The sum is connections_tcp."""
    bytes_sent: int
    """Payload bytes sent on the ring."""
    bytes_received: int
    """Payload bytes received on the ring."""
    messages_sent: int
    """DATA descriptors sent on the ring."""
    messages_received: int
    """DATA descriptors received on the ring."""
    acks_alone: int
    """Acknowledgements sent alone."""
    acks_piggybacked: int
    """Acknowledgements sent together with data."""
    sends_combined: int
    """Sends that were added to the descriptor of an earlier one."""
    doorbells_rung: int
    """Wakeups sent to a sleeping peer."""
    polls_paid: int
    """Waits that polling ended."""
    polls_unpaid: int
    """Waits in which polling was in vain and the thread slept."""
    poll_ns: int
    """Nanoseconds that blocking calls and event loops spent polling. This is a lower bound: a wait of less than about
    2 us counts as 0, to avoid reading the clock."""
    poll_unpaid_ns: int
    """The part of poll_ns in waits that slept in the end."""
    sleeps: int
    """Number of times that a blocking call on a moved connection slept."""
    system_calls: int
    """System calls for moved connections, to sleep and to wake the peer. An event loop's own waits do not count."""

    def metrics(self) -> tuple[Metric, ...]:
        """Returns the statistics as OpenTelemetry metrics. All are counters except `fastsock.connections`, which can
        decrease: a connection counts as in the kernel until it moves."""
        said = "Connections by path, and the reason for those in the kernel"
        on_tcp = (({"fastsock.path": "tcp", "fastsock.reason": why}, n) for why, n in self.fallback_reasons.items())
        paths = (({"fastsock.path": "ring"}, self.connections_ring), *on_tcp)
        counters = (
            Metric(
                f"fastsock.{name}",
                unit,
                description,
                tuple(
                    (
                        {attribute: value} if attribute else {},
                        getattr(self, field) / 1e9 if unit == "s" else getattr(self, field),
                    )
                    for value, field in fields.items()
                ),
            )
            for name, unit, description, attribute, fields in COUNTERS
        )
        return (Metric("fastsock.connections", "{connection}", said, paths, grows=False), *counters)


def snapshot(counters: Mapping[str, int], ring: int, reasons: Mapping[str, int]) -> Stats:
    """Returns the statistics. `counters` are the native ones, `ring` and `reasons` count connections by path."""
    return Stats(
        connections_ring=ring,
        connections_tcp=sum(reasons.values()),
        fallback_reasons=MappingProxyType(dict(reasons)),
        **counters,
    )
