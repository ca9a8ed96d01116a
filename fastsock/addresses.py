"""The ends of a connection as both processes see them: addresses, their order, and which are this host's."""

from __future__ import annotations

import socket as stdlib
from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["Address", "canonical", "is_local", "order"]

Address = IPv4Address | IPv6Address

_socket = stdlib.socket  # the kernel's, whatever is patched later


def canonical(packed: bytes) -> Address:
    """An address as both sides see it: a mapped IPv4 address counts as IPv4."""
    address = ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address


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
        if len(_local_addresses) > 256:
            _local_addresses.clear()
        _local_addresses[address] = known
    return known
