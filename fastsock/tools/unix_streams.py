"""The sockets of AF_UNIX in this network namespace, and which are each other's ends: the kernel says so, by /proc and
sock_diag(7)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

__all__ = ["unix_streams", "unix_table"]

SOCK_DIAG_BY_FAMILY, NETLINK_SOCK_DIAG = 20, 4
REQUEST, DUMP = 0x1, 0x300
SHOW_PEER, PEER = 4, 2
ESTABLISHED = 1
HEADER, ASKED, TOLD, ATTRIBUTE = (struct.Struct(layout) for layout in ("=IHHII", "=BBHIII8s", "=BBBBI8s", "=HH"))
"""nlmsghdr, unix_diag_req, unix_diag_msg, nlattr."""

UNNAMED = "-"


def unix_table() -> list[list[str]]:
    """Returns the words of each line of /proc/net/unix: seven, and the socket's name if it has one."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        return [line.rstrip("\n").split(maxsplit=7) for line in table][1:]


def unix_streams() -> dict[int, tuple[str, str, int]]:
    """Returns of each connected socket, by its inode, the names of both ends, and the inode of the other one; 0: not
    known."""
    try:
        streams = [words for words in unix_table() if (words[4], words[5]) == ("0001", "03")]
    except OSError:
        return {}
    names = {int(words[6]): words[7] if len(words) > 7 else UNNAMED for words in streams}
    others = _other_ends()
    return {
        inode: (name, names.get(others.get(inode, 0), UNNAMED), others.get(inode, 0)) for inode, name in names.items()
    }


def _other_ends() -> dict[int, int]:
    """Empty where the kernel, or a sandbox, does not allow to ask."""
    asked = ASKED.pack(socket.AF_UNIX, 0, 0, 1 << ESTABLISHED, 0, SHOW_PEER, b"\xff" * 8)
    header = HEADER.pack(HEADER.size + len(asked), SOCK_DIAG_BY_FAMILY, REQUEST | DUMP, 0, 0)
    found: dict[int, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(header + asked)
            for message in _answers(kernel):
                inode = TOLD.unpack_from(message)[4]
                for kind, value in _attributes(message[TOLD.size :]):
                    if kind == PEER:
                        (found[inode],) = struct.unpack("=I", value)
    except OSError:
        return {}
    return found


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    while True:
        answer = kernel.recv(1 << 16)
        while answer:
            length, kind, *_ = HEADER.unpack_from(answer)
            if kind != SOCK_DIAG_BY_FAMILY:  # the end, or an error
                return
            yield answer[HEADER.size : length]
            answer = answer[_padded(length) :]


def _attributes(rest: bytes) -> Iterator[tuple[int, bytes]]:
    while len(rest) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(rest)
        yield kind, rest[ATTRIBUTE.size : length]
        rest = rest[_padded(length) :]


def _padded(length: int) -> int:
    return (length + 3) & ~3
