"""Where a connection's bytes go, and the statistics of this process, as frozen records.

Loaded when they are first asked for: a program that is patched as it starts need not load `attrs` for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

__all__ = ["Metric", "Path", "Stats", "snapshot"]


@attrs.frozen
class Path:
    """The path a connection's bytes take."""

    path: str
    """"ring" or "tcp"."""
    reason: str
    """Why it is on the kernel's TCP; for "ring", which directions have moved."""


@attrs.frozen
class Metric:
    """Something that is counted, as OpenTelemetry describes it."""

    name: str
    """As metrics are named there: "fastsock.io"."""
    unit: str
    """In UCUM: By (bytes), s, or what is counted in braces."""
    description: str
    """One line for people."""
    points: tuple[tuple[Mapping[str, str], float], ...]
    """Attributes and value of each."""
    grows: bool = True
    """Whether no value ever gets smaller."""


@attrs.frozen(kw_only=True)
class Stats:
    """Counters of this process since it started. A connection counts once at each end."""

    connections_ring: int
    """Connections, connected plus accepted, that are or were on the virtual interface."""
    connections_tcp: int
    """Those that are or were on kernel TCP to their end."""
    fallback_reasons: Mapping[str, int]
    """Why the latter are there: reason -> count; the counts add up to connections_tcp."""
    bytes_sent: int
    bytes_received: int
    """Payload bytes on the ring."""
    messages_sent: int
    messages_received: int
    """DATA descriptors on the ring."""
    acks_alone: int
    acks_piggybacked: int
    """Acknowledgements sent by themselves, and with DATA going the other way."""
    sends_combined: int
    """Sends that were appended to an open descriptor."""
    doorbells_rung: int
    """Wakeups sent to a peer that slept, doorbell bytes among them."""
    polls_paid: int
    polls_unpaid: int
    """Waits in which polling found what it waited for, and in which it gave up and slept."""
    poll_ns: int
    """Nanoseconds that blocking calls and event loops spent polling, at least: a wait that is over within its first
    round of looks, some 2 us, counts nothing, as the clock is not read again for it."""
    poll_unpaid_ns: int
    """Of those, the nanoseconds of waits that gave up polling and slept."""
    sleeps: int
    """Times that a blocking call slept on a connection with a region."""
    system_calls: int
    """System calls made for connections with a region, to sleep and to wake the peer. Those that a loop sleeps with are
    its own."""

    def metrics(self) -> tuple[Metric, ...]:
        """The same, under names as OpenTelemetry has them. All are counters that only grow, but for the connections: an
        undecided one counts as on kernel TCP first."""
        return (
            Metric(
                "fastsock.connections",
                "{connection}",
                "Ends of connections by the path of their bytes, and why those on kernel TCP are there",
                (
                    ({"fastsock.path": "ring"}, self.connections_ring),
                    *(
                        ({"fastsock.path": "tcp", "fastsock.reason": reason}, count)
                        for reason, count in self.fallback_reasons.items()
                    ),
                ),
                grows=False,
            ),
            Metric(
                "fastsock.io",
                "By",
                "Payload on the ring",
                (
                    ({"network.io.direction": "transmit"}, self.bytes_sent),
                    ({"network.io.direction": "receive"}, self.bytes_received),
                ),
            ),
            Metric(
                "fastsock.messages",
                "{message}",
                "DATA descriptors on the ring",
                (
                    ({"network.io.direction": "transmit"}, self.messages_sent),
                    ({"network.io.direction": "receive"}, self.messages_received),
                ),
            ),
            Metric(
                "fastsock.acknowledgements",
                "{acknowledgement}",
                "Acknowledgements sent by themselves, and with data going the other way",
                (
                    ({"fastsock.acknowledgement": "alone"}, self.acks_alone),
                    ({"fastsock.acknowledgement": "piggybacked"}, self.acks_piggybacked),
                ),
            ),
            Metric("fastsock.sends.combined", "{send}", "Sends that shared a descriptor", (({}, self.sends_combined),)),
            Metric("fastsock.doorbells", "{wakeup}", "Wakeups sent to a peer that slept", (({}, self.doorbells_rung),)),
            Metric(
                "fastsock.polls",
                "{wait}",
                "Waits that polled, by whether polling found what it waited for",
                (
                    ({"fastsock.poll": "paid"}, self.polls_paid),
                    ({"fastsock.poll": "unpaid"}, self.polls_unpaid),
                ),
            ),
            Metric("fastsock.poll.duration", "s", "Time of polling", (({}, self.poll_ns / 1e9),)),
            Metric("fastsock.poll.unpaid.duration", "s", "Of that, in vain", (({}, self.poll_unpaid_ns / 1e9),)),
            Metric("fastsock.sleeps", "{wait}", "Sleeps of blocking calls", (({}, self.sleeps),)),
            Metric("fastsock.calls", "{call}", "System calls to sleep and to wake", (({}, self.system_calls),)),
        )


def snapshot(counters: Mapping[str, int], ring: int, reasons: Mapping[str, int]) -> Stats:
    """The statistics, from the native counters and the connections by their paths."""
    return Stats(
        connections_ring=ring,
        connections_tcp=sum(reasons.values()),
        fallback_reasons=MappingProxyType(dict(reasons)),
        **counters,
    )
