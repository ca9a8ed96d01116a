"""The ends of a connection as both processes see them: addresses, their order, and which are this host's."""

from __future__ import annotations

import socket as stdlib
import sys
from functools import lru_cache

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address
    from typing import TypeAlias

    Address: TypeAlias = IPv4Address | IPv6Address

__all__ = ["End", "canonical", "is_local", "order", "owner", "text"]

End = tuple[bytes, int]
"""A packed address, and a port."""

KEPT = 256
"""Addresses of which something is known."""

_socket = stdlib.socket  # the kernel's, whatever is patched later


@lru_cache(KEPT)
def canonical(packed: bytes) -> Address:
    """An address as both sides see it: a mapped IPv4 address counts as IPv4."""
    from ipaddress import ip_address  # loaded once a connection looks for its peer

    address = ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(KEPT)
def text(packed: bytes) -> str:
    """An address as it stands in a name."""
    return str(canonical(packed))


def order(end: tuple[Address, int]) -> tuple[int, int, int]:
    """Smaller for the usual server: it has the smaller port."""
    return end[1], end[0].version, int(end[0])


_local_addresses: dict[Address, bool] = {}


def is_local(address: Address) -> bool:
    """Whether an address is one of this host's: the kernel binds to it."""
    if address.is_loopback:
        return True
    known = _local_addresses.get(address)
    if known is None:
        family = stdlib.AF_INET if address.version == 4 else stdlib.AF_INET6
        try:
            with _socket(family, stdlib.SOCK_DGRAM) as probe:
                probe.bind((str(address), 0))
            known = True
        except OSError:
            known = False
        if len(_local_addresses) > KEPT:
            _local_addresses.clear()
        _local_addresses[address] = known
    return known


def owner(here: tuple[Address, int], there: tuple[Address, int]) -> int | None:
    """The user of the TCP socket of this network namespace with these two ends, as the kernel tells it (proc(5):
    /proc/net/tcp). None: there is none, or it is not told."""
    wanted = {_in_table(here, version) + " " + _in_table(there, version) for version in (4, 6)}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                for line in lines:
                    _, local, remote, state, _, _, _, uid, *_ = line.split()
                    if f"{local} {remote}" in wanted and state == ESTABLISHED:
                        return int(uid)
        except (OSError, ValueError):
            continue
    return None


ESTABLISHED = "01"


def _in_table(end: tuple[Address, int], version: int) -> str:
    """An end as the kernel prints it for sockets of one IP version: words of the address in the host's byte order."""
    address, port = end
    packed = address.packed
    if version == 6 and address.version == 4:
        packed = bytes(10) + b"\xff\xff" + packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
