"""What to do about each reason why a connection is on kernel TCP: one line each, for the doctor and the documents."""

from __future__ import annotations

from types import MappingProxyType

from fastsock.rendezvous import DISABLED, FOREIGN, Reason

__all__ = ["ADVICE", "advice_for"]

ADVICE = MappingProxyType(
    {
        Reason.FEW: (
            "Nothing to do: it ended, or is idle, before a move would pay. Keep connections open (keep-"
            "alive, a pool) to gain; move_after=0 moves them at their first byte."
        ),
        Reason.SEEKING: (
            "It is looking for the other end. If it stays so, the other end makes no calls: both ends have "
            "to be busy within the same 2 s."
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
            "Start the other end under `fastsock run` too. Two containers with a network each do not find "
            "each other; a proxy between the ends hides them."
        ),
        Reason.UNTRUSTED: (
            'Run both ends as the same user, or set trust="any" at both if you trust every user of this host.'
        ),
        Reason.NAME: (
            "Another process holds the name of this connection. If it comes again, see who holds names like "
            "@fastsock/tcp/... in /proc/net/unix."
        ),
        Reason.REFUSED: (
            "The other end had no room for the meeting four times: raise its listen backlog, or its limit on"
            " descriptors."
        ),
        Reason.OPTION: (
            "A socket option that only the kernel offers is set (SO_RCVLOWAT, SO_PEEK_OFF, SO_ZEROCOPY, "
            "TCP_CORK, TCP_ULP): do without it."
        ),
        Reason.POLLED: (
            "The program waits with select, poll or epoll, which gains nothing on the ring. asyncio's "
            "transports and blocking sockets do; move_polled=1 moves it all the same."
        ),
        Reason.DETACHED: (
            "The program took the descriptor away (detach(), TLS of ssl.SSLSocket): it stays on the kernel. "
            "asyncio's TLS may take the ring."
        ),
        Reason.BACK: (
            "Its descriptor went to somebody who uses it raw (TLS, a subprocess, C code), or nobody has sent"
            " anything since both ends agreed."
        ),
        Reason.OVERRIDDEN: "The program's socket class has its own recv or send: hand the loop a plain socket object.",
        Reason.HANDED_OUT: (
            "Somebody asked for the number of a loop's socket (fileno() of get_extra_info('socket'), as "
            "httpx does): leave that call out."
        ),
        Reason.FORKED: (
            "Another process holds it too: close the connection in the process that does not use it, after the fork."
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


def advice_for(reason: str) -> str:
    """One line for somebody who finds connections on kernel TCP for this reason."""
    return ADVICE.get(reason, "Unknown to this version of fastsock: see that all processes run the same one.")
