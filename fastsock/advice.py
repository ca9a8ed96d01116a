"""Why connections are on kernel TCP: which end refused, and what to do. For the doctor and the documents."""

from __future__ import annotations

from types import MappingProxyType

import attrs

from fastsock.path_policy import DISABLED, FOREIGN, Reason

__all__ = ["ADVICE", "Peer", "advice_for", "refused_by"]


@attrs.frozen(kw_only=True)
class Peer:
    """The program at the other end of a connection, as far as it can be known from outside."""

    pid: int
    command: str
    python: bool
    fastsock: bool
    """Whether it has loaded fastsock."""
    reason: str = ""
    """Why its end of the connection is on kernel TCP, if it told that."""

    def __str__(self) -> str:
        program, _, rest = self.command.partition(" ")
        command = f"{program.rpartition('/')[2] or program} {rest}"
        return f"{command[:60].strip()} (pid {self.pid})"


ADVICE = MappingProxyType(
    {
        Reason.FEW: (
            "Nothing to do: it ended, or is idle, before a move would pay. Keep connections open (keep-"
            "alive, a pool) to gain; move_after=0 moves them at their first byte."
        ),
        Reason.SEEKING: (
            "Nothing to do: it was looking for the other end still. If it stays so, the other end makes no calls: both "
            "ends have to be busy within the same 2 s."
        ),
        Reason.EXCLUDED: (
            "ports_allowed, ports_excluded, addresses_allowed or addresses_excluded says so: change that "
            "setting if the connection shall move."
        ),
        Reason.REMOTE: (
            "Nothing to do: the other end is on another host. If it is not, address it by a loopback address"
            " or by one of this host."
        ),
        Reason.PEER: (
            "Start the other end under `fastsock run` too, if it is a Python program of yours and is not. For any "
            "other program, or behind a proxy or in another network: nothing to do."
        ),
        Reason.UNTRUSTED: (
            'Run both ends as the same user, or set trust="any" at both if you trust every user of this host.'
        ),
        Reason.NAME: (
            "Nothing to do for one connection: another process holds its name. If it comes again, see who holds names "
            "like @fastsock/tcp/... in /proc/net/unix."
        ),
        Reason.REFUSED: (
            "The other end had no room for the meeting four times: raise its listen backlog, or its limit on"
            " descriptors."
        ),
        Reason.OPTION: (
            "A socket option that only the kernel offers is set (SO_RCVLOWAT, SO_PEEK_OFF, SO_ZEROCOPY, "
            "TCP_CORK, TCP_ULP): leave it out in code of yours; else nothing to do."
        ),
        Reason.POLLED: (
            "Nothing to do: the program waits with select, poll or epoll, as requests, httpx and trio do, and would "
            "gain nothing. What gains is blocking sockets and asyncio's transports."
        ),
        Reason.DETACHED: (
            "Nothing to do: the descriptor was taken away (detach(), TLS of ssl.SSLSocket), so that it stays on the "
            "kernel. asyncio's TLS may take the ring."
        ),
        Reason.BACK: (
            "Nothing to do: its descriptor went to somebody who uses it raw (TLS, a subprocess, C code), or nobody has"
            " sent anything since both ends agreed."
        ),
        Reason.OVERRIDDEN: (
            "The socket class has its own recv or send: hand the loop a plain socket object, if the class is yours; "
            "else nothing to do."
        ),
        Reason.HANDED_OUT: (
            "Somebody asked for the number of a loop's socket (fileno() of get_extra_info('socket')): leave that call "
            "out in code of yours. A library does so, such as httpx: nothing to do."
        ),
        Reason.FORKED: (
            "Another process holds it too: in a program of yours, close it after the fork in the process that does not "
            "use it; else nothing to do."
        ),
        Reason.MEMORY_CAP: (
            "Raise memory_cap (FASTSOCK_MEMORY_CAP): what moved connections have in memory counts, "
            "and 2 MiB for the one that is to move."
        ),
        Reason.RESOURCES: (
            "Raise the limit on descriptors (ulimit -n): fastsock uses a sixteenth of the numbers at most; "
            "a connection needs some while it moves, and none then. Or memory is short."
        ),
        Reason.ENDING: "Nothing to do: it was closed or reset while it looked for its peer.",
        Reason.VIOLATION: (
            "It was reset. Please report it with the event fastsock.violation, and with what runs at the other end."
        ),
        Reason.VERSION: (
            "The two ends have versions of fastsock that do not understand each other: install the same one "
            "at both, and start both again. `fastsock ss` shows each process's."
        ),
        Reason.UNPAID: (
            "Nothing to do: most sessions with this service are too short to gain, or wait too long, or the other ends "
            "have no fastsock. Longer ones move; move_after=0 moves every one."
        ),
        DISABLED: "enabled is 0 (FASTSOCK_ENABLED=0): take that out.",
        FOREIGN: (
            "The socket was made before patch(), or with a class imported from socket before it: start the "
            "program by `fastsock run`, or call patch() first."
        ),
    }
)


OTHER_END = {Reason.PEER, Reason.REFUSED}
NEITHER = {
    Reason.SEEKING, Reason.REMOTE, Reason.UNTRUSTED, Reason.NAME, Reason.BACK, Reason.ENDING, Reason.VIOLATION,
    Reason.VERSION,
}  # fmt: skip
UNANSWERED = {Reason.PEER, Reason.SEEKING, Reason.UNPAID}
"""Reasons behind which may stand one of the other end's own."""


def refused_by(reason: str) -> str:
    """Which end is on kernel TCP by its own decision: "this end" (that one has the reason), "the other end", or ""."""
    return "the other end" if reason in OTHER_END else "" if reason in NEITHER else "this end"


def advice_for(reason: str, peer: Peer | None = None) -> str:
    """What somebody can do who finds connections on kernel TCP for this reason, or that there is nothing to do."""
    own = ADVICE.get(reason, "Unknown to this version of fastsock: see that all processes run the same one.")
    if peer is None:
        return own
    if not peer.python:
        return f"Nothing to do: the other end, {peer}, is no Python program, and fastsock runs in those only."
    if not peer.fastsock:
        start = f"start the other end, {peer}, under `fastsock run`"
        if reason in UNANSWERED:
            return f"If it is yours, {start} too."
        return own if own.startswith("Nothing to do") else f"{own} Besides, {start} too."
    if reason in UNANSWERED and peer.reason and peer.reason not in UNANSWERED:
        return f"The other end, {peer}, refused: {peer.reason}. For that end: {ADVICE.get(peer.reason, own)}"
    if reason == Reason.PEER:
        return (
            f"The other end, {peer}, has fastsock, and did not answer within 2 s: both ends have to be busy at the "
            "same time. `fastsock doctor` there says more."
        )
    return own
