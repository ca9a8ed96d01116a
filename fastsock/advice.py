"""For each reason why a connection is in the kernel: the end that refused, and what the user can do about it."""

from __future__ import annotations

from types import MappingProxyType

import attrs

from fastsock.path_events import DISABLED, FOREIGN, Reason

__all__ = ["ADVICE", "Peer", "advice_for", "refused_by"]


@attrs.frozen(kw_only=True)
class Peer:
    """The program at the other end of a connection, as /proc shows it."""

    pid: int
    command: str
    python: bool
    fastsock: bool
    """True if the process has loaded fastsock."""
    reason: str = ""
    """Why the other end is in the kernel; empty if unknown."""
    elsewhere: bool = False
    """True if it is in another network namespace of this host."""

    def __str__(self) -> str:
        program, _, rest = self.command.partition(" ")
        command = f"{program.rpartition('/')[2] or program} {rest}"
        return f"{command[:60].strip()} (pid {self.pid})"


ADVICE = MappingProxyType(
    {
        Reason.FEW: (
            "Nothing to do: short and idle connections stay on TCP. To gain, keep connections open (keep-alive, a "
            "pool). With move_after=0 they move at their first byte."
        ),
        Reason.SEEKING: (
            "The connection was still looking for its peer. If this persists, the other end makes no calls, shares the "
            "connection with another process, or cannot be served: `fastsock doctor` there says more."
        ),
        Reason.EXCLUDED: (
            "ports_*, addresses_* or paths_* (allowed, excluded) excludes it: change that setting if the connection "
            "should move."
        ),
        Reason.REMOTE: (
            "Nothing to do if the other end is on another host. If it is on this one, in another network namespace (a "
            "container), give both a folder (rendezvous_dir), or let them share one network."
        ),
        Reason.PEER: (
            "Start the other end under `fastsock run` too, if it is a program of yours. If it runs in another network "
            "or behind a proxy: nothing to do."
        ),
        Reason.UNTRUSTED: (
            'Run both ends as the same user, or name each end\'s user at the other end, such as trust="user,redis". '
            'trust="any" at both ends trusts every user of this host.'
        ),
        Reason.NAME: (
            "Nothing to do for a single connection: another process holds its rendezvous name. If it happens often, "
            "look for @fastsock/tcp/... in /proc/net/unix."
        ),
        Reason.REFUSED: (
            "The other end was too busy to accept the move, four times: raise its listen backlog or its descriptor "
            "limit (ulimit -n)."
        ),
        Reason.OPTION: (
            "The socket has an option that only the kernel offers (SO_RCVLOWAT, SO_PEEK_OFF, SO_ZEROCOPY, TCP_CORK, "
            "TCP_ULP): leave it out if the code is yours, else nothing to do."
        ),
        Reason.DETACHED: (
            "Nothing to do: the connection became a standard stream (a subprocess), is signalled by SIGIO, or fileno() "
            "was asked of a transport whose loop fastsock does not serve."
        ),
        Reason.BACK: (
            "Nothing to do: a subprocess, or code that calls the kernel past the C library, uses the descriptor, or no "
            "data was sent since both ends agreed to move."
        ),
        Reason.FORKED: (
            "Another process has this connection open too: after a fork, close it in the process that does not use "
            "it, if the code is yours. Else nothing to do."
        ),
        Reason.MEMORY_CAP: (
            "Raise memory_cap (FASTSOCK_MEMORY_CAP). It must cover the shared memory of all moved connections, plus "
            "2 MiB for the next one."
        ),
        Reason.RESOURCES: (
            "Raise the descriptor limit (ulimit -n): fastsock uses at most a sixteenth of it, and only while "
            "connections move. Otherwise memory is short."
        ),
        Reason.ENDING: "Nothing to do: the connection was closed or reset while it looked for its peer.",
        Reason.VIOLATION: (
            "The connection was reset: see the event fastsock.violation or fastsock.fault. Unless code without "
            "fastsock wrote to the descriptor, please report it, with the program at the other end."
        ),
        Reason.VERSION: (
            "The two ends run incompatible versions of fastsock: install the same version at both and restart them. "
            "`fastsock ss` shows the version of each process."
        ),
        Reason.UNPAID: (
            "Nothing to do: most sessions of this service are too short to gain, or the other end has no fastsock. "
            "Longer ones move; with move_after=0 all of them move."
        ),
        Reason.ABSENT: (
            "Nothing to do for another host. Else give both ends fastsock and one folder (rendezvous_dir), and connect "
            "to the container's own address: none that is translated (a published port)."
        ),
        Reason.UNPROVEN: (
            "Let the two addresses exchange UDP datagrams: a firewall, a network policy or address translation keeps "
            "them apart, or another process has taken the name in rendezvous_dir."
        ),
        DISABLED: "enabled is 0: remove FASTSOCK_ENABLED=0 from the environment, or enabled=False from the call.",
        FOREIGN: (
            "The socket is older than patch(), or came from another program: start the program with `fastsock run`, "
            "or call patch() first."
        ),
    }
)


OTHER_END = {Reason.PEER, Reason.REFUSED}
NEITHER = {
    Reason.SEEKING, Reason.REMOTE, Reason.UNTRUSTED, Reason.NAME, Reason.BACK, Reason.ENDING, Reason.VIOLATION,
    Reason.VERSION, Reason.ABSENT, Reason.UNPROVEN,
}  # fmt: skip
UNANSWERED = {Reason.PEER, Reason.SEEKING, Reason.UNPAID}
"""Reasons that may be a consequence of the other end's own reason."""


def refused_by(reason: str) -> str:
    """Returns the end that refused to move: "this end" (which has the reason), "the other end", or "" for neither."""
    return "the other end" if reason in OTHER_END else "" if reason in NEITHER else "this end"


def advice_for(reason: str, peer: Peer | None = None, user: str = "") -> str:
    """Returns what the user can do about this reason, or that there is nothing to do. `user`: whose the other end is,
    if that is another user."""
    own = ADVICE.get(reason, "This version of fastsock does not know the reason: use one version in all processes.")
    if user and (reason in UNANSWERED or reason == Reason.UNTRUSTED) and (peer is None or peer.fastsock):
        return (
            f"The other end{f', {peer},' if peer else ''} belongs to the user {user}. If it is under `fastsock run`, "
            f"name each end's user at the other end: FASTSOCK_TRUST=user,{user} here, and this end's user there."
        )
    if peer is None:
        return own
    if peer.elsewhere and reason == Reason.REMOTE:
        return (
            f"The other end, {peer}, is on this host, in another network namespace: give both a folder that they share "
            "(rendezvous_dir), or let them share one network (--network container:..., one pod)."
        )
    if not peer.fastsock and not peer.python:
        return (
            f"The other end, {peer}, runs without fastsock. If it is yours, start it under `fastsock run` too; "
            "docs/interpose.md says which programs work."
        )
    if not peer.fastsock:
        start = f"start the other end, {peer}, under `fastsock run`"
        if reason in UNANSWERED:
            return f"If it is yours, {start} too."
        return own if own.startswith("Nothing to do") else f"{own} Also, {start} too."
    if reason in UNANSWERED and peer.reason and peer.reason not in UNANSWERED:
        return f"The other end, {peer}, refused: {peer.reason}. For that end: {ADVICE.get(peer.reason, own)}"
    if reason == Reason.PEER:
        return (
            f"The other end, {peer}, has fastsock but did not answer within 2 s: both ends must be active at the same "
            "time. `fastsock doctor` there says more."
        )
    return own
