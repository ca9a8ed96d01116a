"""Members that write what no member writes: an error in words, never a crash or a look beside the group's memory."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from harness.pairs import SECONDS, KernelSocket

from fastsock import Group
from fastsock._native.messages import inspect

from .test_groups import child

OPTIONS = {"kept": 8, "size": 1 << 16, "max_message": 1 << 16}
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def files(name: str) -> list[int]:
    """The descriptors of table and arena, from a member, as whoever joins gets them."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as joining:
        joining.connect(f"\0fastsock/group/{key(name)}/0")
        return list(socket.recv_fds(joining, 100, 2)[1])


def key(name: str) -> str:
    """core/messages/join.c: key_of."""
    known = 0xCBF29CE484222325
    for byte in struct.pack("=I", os.geteuid()) + name.encode():
        known = (known ^ byte) * 0x100000001B3 % (1 << 64)
    return "".join("0123456789abcdef"[known >> 4 * i & 15] for i in range(16))


@pytest.mark.parametrize("slow", ["drop", "block"])
@pytest.mark.parametrize("seed", range(2))
def test_garbage_in_the_table(name: str, slow: str, seed: int) -> None:
    def abuse() -> None:
        dice = random.Random(seed)
        for round in range(3):
            with Group(f"{name} {round}", slow=slow, **OPTIONS) as group:  # type: ignore[arg-type]
                table, _ = files(f"{name} {round}")
                memory = mmap.mmap(table, os.fstat(table).st_size)
                held = []
                for _ in range(60):
                    for _ in range(dice.choice((1, 1, 5, 100))):
                        at = dice.randrange(len(memory) // 8) * 8
                        value = dice.choice((0, 1, 2, 255, dice.getrandbits(64), (1 << 64) - 1, dice.getrandbits(20)))
                        memory[at : at + 8] = struct.pack("=Q", value)
                    with contextlib.suppress(ConnectionAbortedError, TimeoutError):
                        group.send(bytes(dice.choice((10, 3000, 60000))), 0)
                    with contextlib.suppress(ConnectionAbortedError, TimeoutError), group.lend(2000, 0) as lent:
                        memoryview(lent)[:] = bytes(2000)
                    with contextlib.suppress(ConnectionAbortedError):
                        if (message := group.take()) is not None:
                            held.append(message)
                            assert len(bytes(message)) <= 1 << 16
                        group.info()
                    del held[:-3]

    with child(abuse):
        pass


def test_each_word_of_the_head_is_half_of_all_numbers(name: str) -> None:
    """Twice such a word is 0, by which nobody must divide."""

    def abuse() -> None:
        for at in range(0, 1024, 4):
            with Group(f"{name} {at}", **OPTIONS) as group:  # type: ignore[arg-type]
                table, arena = files(f"{name} {at}")
                memory = mmap.mmap(table, os.fstat(table).st_size)
                group.send(bytes(3000))
                memory[at : at + 4] = struct.pack("=I", 1 << 31)
                with contextlib.suppress(ConnectionAbortedError):
                    group.take()
                os.close(table)
                os.close(arena)

    with child(abuse):
        pass


def test_a_message_that_cannot_be_ends_the_group_in_words(name: str) -> None:
    with Group(name, **OPTIONS) as group:  # type: ignore[arg-type]
        table, arena = files(name)
        memory = mmap.mmap(table, os.fstat(table).st_size)
        group.send(b"x")
        words = list(struct.unpack_from(f"={len(memory) // 8}Q", memory))
        lap = [at for at, word in enumerate(words) if word & 0xFFFFFF == 0xFFFFFF and word != (1 << 64) - 1]
        slots = (lap[0] - 1) * 8  # the slot of the message that was sent is before those of the lap that never was
        memory[slots : slots + 8] = struct.pack("=Q", 0xFFFFFE)
        with pytest.raises(ConnectionAbortedError, match="no member writes"):
            group.receive(SECONDS)
        os.close(table)
        os.close(arena)


@contextlib.contextmanager
def holder(name: str, fds: list[int], said: bytes) -> Iterator[None]:
    """Hands these descriptors to whoever joins."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0fastsock/group/{key(name)}/0")
        listener.listen(64)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer = listener.accept()[0]
                    with peer, contextlib.suppress(OSError):
                        socket.send_fds(peer, [said], fds)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


WELCOME = struct.pack("=QII", 0x3170756F72677366, 1, 0)


def made(size: int, seals: int = SEALS, begins: bytes = b"") -> int:
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    os.pwrite(fd, begins, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def header(name: str, size: int = 1 << 16, largest: int = 1 << 16, slots: int = 8) -> bytes:
    head = struct.pack("=QIIIIQQ", 0x3170756F72677366, 1, slots, 0, len(name.encode()), size, largest)
    return head + name.encode()


@pytest.mark.parametrize("what", ["small", "unsealed", "empty", "other name", "huge", "one file", "no welcome", "pipe"])
def test_memory_that_is_no_group(name: str, what: str) -> None:
    table = {
        "small": lambda: made(100),
        "unsealed": lambda: made(1 << 20, 0, header(name)),
        "empty": lambda: made(1 << 20),
        "other name": lambda: made(1 << 20, SEALS, header("another")),
        "huge": lambda: made(1 << 20, SEALS, header(name, 1 << 60, 1 << 60)),
        "one file": lambda: made(1 << 20, SEALS, header(name)),
        "no welcome": lambda: made(1 << 20, SEALS, header(name)),
        "pipe": lambda: os.pipe()[0],
    }[what]()
    fds = [table] if what == "one file" else [table, made(1 << 20)]
    with holder(name, fds, b"hello" if what == "no welcome" else WELCOME):
        with pytest.raises(ConnectionAbortedError, match="no member writes"):
            Group(name)
        with pytest.raises(ConnectionAbortedError):
            inspect(f"fastsock/group/{key(name)}/0".encode())


def test_another_version_is_told_in_words(name: str) -> None:
    with (
        holder(name, [made(1 << 20), made(1 << 20)], WELCOME[:8] + struct.pack("=II", 2, 0)),
        pytest.raises(OSError, match="another version"),
    ):
        Group(name)
