"""usage: ftp_client.py PORT down|down8k|up|small MIB"""

import ftplib
import sys
from itertools import count

import clock

port, kind, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) << 20
BLOCK = 65536
session = ftplib.FTP()
session.connect("127.0.0.1", port)
session.login("u", "p")
numbers = count()


class Zeros:
    """A file of so many zeros."""

    def __init__(self) -> None:
        self.left = size
        self.block = bytes(BLOCK)

    def read(self, wanted: int) -> bytes:
        some = min(wanted, self.left, BLOCK)
        self.left -= some
        return self.block[:some]


def fetch(name: str, expected: int, block: int) -> None:
    got = 0

    def take(data: bytes) -> None:
        nonlocal got
        got += len(data)

    session.retrbinary(f"RETR {name}", take, blocksize=block)
    assert got == expected


if kind == "small":
    clock.repeat(lambda: fetch(f"small{next(numbers) % 50}", 1024, 8192))
elif kind == "up":
    clock.repeat(lambda: session.storbinary("STOR up", Zeros(), blocksize=BLOCK))  # type: ignore[arg-type]
else:
    clock.repeat(lambda: fetch("big", size, BLOCK if kind == "down" else 8192))
session.quit()
