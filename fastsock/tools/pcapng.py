"""Writes packets as a pcapng stream (draft-ietf-opsawg-pcapng): raw IP packets with times in nanoseconds,
comments, and counts of what was dropped. Wireshark, tshark and tcpdump read it."""

from __future__ import annotations

import ipaddress
import struct
from typing import IO, TypeAlias

__all__ = ["ACK", "FIN", "HEAD", "PSH", "RST", "SYN", "Address", "Writer", "packet"]

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
RAW_IP = 101  # LINKTYPE_RAW
TCP, LIFETIME, WINDOW = 6, 64, 65535
HEAD = {4: 40, 6: 60}  # bytes of both headers


def packet(
    source: tuple[Address, int], target: tuple[Address, int], flags: int, seq: int, ack: int, data: bytes, length: int
) -> bytes:
    """Returns an IP packet with a TCP segment of `length` bytes, of which `data` is the beginning. The sum is that of
    `data`."""
    (here, own_port), (there, other_port) = source, target
    length += 20
    seq, ack = seq % (1 << 32), ack % (1 << 32) if flags & ACK else 0

    def segment(total: int) -> bytes:
        return struct.pack("!HHIIBBHHH", own_port, other_port, seq, ack, 0x50, flags, WINDOW, total, 0)

    pseudo = here.packed + there.packed + struct.pack("!II", length, TCP)
    tcp = segment(_sum(pseudo + segment(0) + data)) + data
    if here.version == 6:
        return struct.pack("!IHBB", 6 << 28, length, TCP, LIFETIME) + here.packed + there.packed + tcp

    def head(total: int) -> bytes:
        fixed = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, LIFETIME, TCP, total)
        return fixed + here.packed + there.packed

    return head(_sum(head(0))) + tcp


def _sum(data: bytes) -> int:
    """The Internet's sum (RFC 1071): a number is what its digits of 16 bits sum up to, modulo 65535."""
    return -int.from_bytes(data + b"\0" * (len(data) % 2), "big") % 0xFFFF


class Writer:
    """Writes blocks to a file."""

    def __init__(self, file: IO[bytes], application: str) -> None:
        self.file = file
        self.interfaces = 0
        options = _options((4, application.encode()))  # shb_userappl
        self._block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1) + options)

    def interface(self, name: str, description: str, snaplen: int) -> int:
        """Begins an interface, and returns its number."""
        options = _options((2, name.encode()), (3, description.encode(errors="replace")), (9, b"\x09"))  # 10^-9 s
        self._block(1, struct.pack("=HHI", RAW_IP, 0, snaplen) + options)
        self.interfaces += 1
        return self.interfaces - 1

    def packet(self, interface: int, when: int, data: bytes, length: int, outbound: bool, comment: str = "") -> None:
        """`when`: ns since 1970. `length`: of the whole packet, of which `data` is the beginning."""
        head = struct.pack("=IIIII", interface, when >> 32, when & 0xFFFFFFFF, len(data), length)
        flags = 2, struct.pack("=I", 2 if outbound else 1)
        comments = [(1, comment.encode(errors="replace"))] if comment else []
        self._block(6, head + _padded(data) + _options(*comments, flags))

    def dropped(self, interface: int, when: int, count: int) -> None:
        """Says at the end how many records of an interface were lost."""
        head = struct.pack("=III", interface, when >> 32, when & 0xFFFFFFFF)
        self._block(5, head + _options((5, struct.pack("=Q", count))))  # isb_ifdrop

    def _block(self, kind: int, body: bytes) -> None:
        length = len(body) + 12
        self.file.write(struct.pack("=II", kind, length) + body + struct.pack("=I", length))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _options(*options: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("=HH", code, len(value)) + _padded(value) for code, value in options) + bytes(4)
