"""Whether what was seen on a fastsock connection is what kernel TCP gives, and which differences are accepted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .combinations import CALLS, Combination


class Difference(NamedTuple):
    """An accepted difference: for combinations whose text matches `where`, a line seen on TCP and one seen here."""

    name: str
    where: str
    tcp: str
    here: str
    reason: str

    def covers(self, c: str, tcp: str, here: str) -> bool:
        return bool(re.search(self.where, c) and re.fullmatch(self.tcp, tcp) and re.fullmatch(self.here, here))


def alike(c: Combination, tcp: str, here: str) -> bool:
    """Whether two observations mean the same. How much a connection holds is not compared, so that these do, where a
    direction was full:

    - a small send in it may be taken or not, and of what `poll` tells all but POLLIN depends on what has got through;
    - a stream that TCP cuts off, as a reset or the reader's SHUT_RD does, may be cut off elsewhere, or not at all;
    - a reader with SHUT_RD stops at the first gap: how far it comes, and whether a reset comes before, is not told;
    - a send to a peer that has closed may be the one that draws the reset, or one behind it;
    - one to a peer that shut both its directions, too: it draws the reset when it arrives."""
    what, _, on_tcp = tcp.partition(": ")
    if tcp == here or not here.startswith(what):
        return tcp == here
    on_ring = here.partition(": ")[2]
    near = what.startswith("near")
    mine, others = (c.out, c.inn) if near else (c.inn, c.out)
    if what.startswith(("after it", "far has")):
        return calls_alike(c, what, on_tcp, on_ring)
    if what == "near reads" and c.out == "full" and reader_is_shut(c, near=False):  # far may close with bytes unread
        return {on_tcp.rpartition(" ")[2], on_ring.rpartition(" ")[2]} <= {"eof", "ECONNRESET"}
    if what.endswith("reads") and others == "full" and reader_is_shut(c, near):
        return {on_tcp.rpartition(" ")[2], on_ring.rpartition(" ")[2]} <= {"eof", "ECONNRESET"}
    if what.endswith("reads"):
        return (on_tcp.startswith("part, then E") and on_ring == on_tcp.replace("part", "all")) or (
            others == "full" and on_tcp.startswith("part") and on_ring.rpartition(" ")[2] in ("eof", "ECONNRESET")
        )
    if what.endswith("polls"):
        return "full" in (mine, others) and ("IN" in on_tcp.split("|")) == ("IN" in on_ring.split("|"))
    if what.endswith("sends to nobody"):
        return "full" in (mine, others) and {on_tcp, on_ring} <= {"ok", "EAGAIN", "EPIPE", "ECONNRESET"}
    if "full" in (mine, others) and what.endswith("sends") and {on_tcp, on_ring} == {"EPIPE", "ECONNRESET"}:
        return True
    if near and shut_both(c) and c.out == "full" and what.endswith("sends"):
        return {on_tcp, on_ring} <= {"ok", "EAGAIN", "EPIPE", "ECONNRESET"}
    return what.endswith("sends") and mine == "full" and {on_tcp, on_ring} == {"ok", "EAGAIN"}


def shut_both(c: Combination) -> bool:
    """Whether far has shut both its directions."""
    return c.event == "far.shut_rdwr" or (c.event == "far.shut_rd" and c.in_end == "peer")


def reader_is_shut(c: Combination, near: bool) -> bool:
    if near:
        return c.in_end == "us" or c.event in ("near.shut_rd", "near.shut_rdwr")
    return c.event in ("far.shut_rd", "far.shut_rdwr")


def calls_alike(c: Combination, when: str, on_tcp: str, here: str) -> bool:
    """Of calls in progress, these are not told apart:

    - of two calls, the one that hears of a reset first gets ECONNRESET, and the other one EOF or EPIPE;
    - a `sendall` to a peer with SHUT_RD, which reads only as far as it finds bytes at once: how far is the buffers'
      affair. (What it does before the peer reads is compared.)
    - a `poll` whose number was closed meanwhile: woken, the kernel looks at whatever file has the number by then."""
    (call, before), (other, after) = on_tcp.split(), here.split()
    if call != other:
        return False
    if c.call == "both" and c.event in ("far.close", "far.reset", "far.killed"):
        return {before, after} == ({"eof", "ECONNRESET"} if call == "recv" else {"EPIPE", "ECONNRESET"})
    if call == "poll" and c.event in ("near.close", "near.reset"):
        return "blocked" not in (before, after)
    return (
        call == "sendall"
        and when.startswith("far has")
        and c.event in ("far.shut_rd", "far.shut_rdwr")
        and {before, after} <= {"blocked", "done", "EPIPE", "ECONNRESET"}
    )


def differences(c: Combination, oracles: Sequence[Sequence[str]], seen: Sequence[str]) -> list[tuple[str, str]]:
    """The observations that none of the runs on TCP made: (on TCP, here). Ends where the courses part for good."""
    found = []
    candidates = list(oracles)
    for at, here in enumerate(seen):
        candidates = [oracle for oracle in candidates if at < len(oracle)]
        if not candidates:
            found.append(("nothing more", here))
            break
        agreeing = [oracle for oracle in candidates if alike(c, oracle[at], here)]
        if agreeing:
            candidates = agreeing
            continue
        tcp = candidates[0][at]
        if tcp.partition(":")[0] == here.partition(":")[0]:
            found.append((tcp, here))
            continue
        # The script goes on as the calls in progress allow, and those were compared already.
        if not found and not any(CALLS[c.call]):
            found.append((tcp, here))
        break
    else:
        if all(len(oracle) > len(seen) for oracle in candidates):
            found.append((candidates[0][len(seen)], "nothing more"))
    return found
