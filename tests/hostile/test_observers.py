"""Who may look at the bytes of a process, and what a hostile observer costs it: nothing but its own records."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import select
import socket
import struct
import time
from typing import Any

import pytest
from harness.observing import TALK, do, watched
from harness.pairs import KernelSocket, until
from harness.processes import running

from fastsock._native.control import TAP_MAGIC, TAP_SIZE, VERSION
from fastsock.tools import introspection, taps
from fastsock.tools.taps import Taps

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.mark.parametrize("how", ["fastsock.patch(tcpdump=False)", "__import__('ctypes').CDLL(None).prctl(4, 0)"])
def test_a_process_that_does_not_want_to_be_seen(how: str):
    with running(TALK) as program:
        program.line()
        do(program, how)
        remarks: list[str] = []
        (name,) = names_of(program.pid)
        seen = Taps(None, 99, 0, remarks.append)
        seen._offer(name, program.pid)
        until(lambda: seen.processes[name].tap.answer, "it answers")
        assert not list(seen.packets())
        assert taps.REMARKS[taps.REFUSED] in remarks[0]
        do(program, "near.sendall(b'as ever'); far.recv(9)")


def names_of(pid: int) -> list[bytes]:
    """Also of a process whose descriptors nobody may see."""
    asked = introspection.names()
    return [name for name, found in introspection.present(asked, 1).items() if found == pid]


def test_one_observer_at_a_time():
    with running(TALK) as program:
        program.line()
        remarks: list[str] = []
        other = Taps({program.pid}, 99, 0, remarks.append)
        with watched(program.pid) as seen:
            other.search()
            until(lambda: next(iter(other.processes.values())).tap.answer, "it answers")
            list(other.packets())
            assert taps.REMARKS[taps.BUSY] in remarks[0]
            do(program, "near.sendall(b'x'); far.recv(9)")
            assert [each.data for each in seen.packets(last=True)] == [b"x"]
        with watched(program.pid) as seen:  # the next one need not wait
            do(program, "near.sendall(b'y'); far.recv(9)")
            assert [each.data for each in seen.packets(last=True)] == [b"y"]


def offer(pid: int, size: int, flags: int = os.MFD_ALLOW_SEALING, seals: int = taps.SEALS) -> int:
    """Offers a file as a page, and returns it."""
    memfd = os.memfd_create("page", os.MFD_CLOEXEC | flags)
    os.ftruncate(memfd, size)
    if flags & os.MFD_ALLOW_SEALING:
        fcntl.fcntl(memfd, taps.ADD_SEALS, seals)
    (name,) = introspection.names({pid})
    with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memfd))]
        sender.sendmsg([taps.OFFER.pack(TAP_MAGIC, VERSION, 0)], rights, 0, name)
    return memfd


@pytest.mark.parametrize(
    "page",
    [
        {"size": TAP_SIZE - 4096},
        {"size": TAP_SIZE, "seals": 1},
        {"size": TAP_SIZE, "flags": 0},
        {"size": 0},
        {"size": 4096},
    ],
    ids=["short", "may shrink", "unsealed", "empty", "one page"],
)
def test_a_page_that_is_none(page: dict[str, int]):
    with running(TALK) as program:
        program.line()
        before = len(os.listdir(f"/proc/{program.pid}/fd"))
        memfd = offer(program.pid, **page)
        for _ in range(3):
            do(program, "near.sendall(b'x' * 100); assert_ = far.recv(200)")
        assert introspection.query({program.pid})
        assert os.pread(memfd, 1 << 12, 0).strip(b"\0") == b""
        assert len(os.listdir(f"/proc/{program.pid}/fd")) == before
        os.close(memfd)


def test_a_hostile_observer_harms_its_own_records_only():
    """It writes anything anywhere in the page while bytes go by."""
    drawn = random.Random(7)
    source = """
        fastsock.patch()
        with make_pair("ring") as pair:
            near, far = pair
            say("moved")
            for i in range(3000):
                data = pattern(1 + i * 37 % 5000)
                near.sendall(data)
                assert read_exactly(far, len(data)) == data
            say("well")
            told()
    """
    with running(source.replace('say("moved")', 'say("moved"); told()')) as program:
        program.line()
        memfd = offer(program.pid, TAP_SIZE)
        with mmap.mmap(memfd, TAP_SIZE) as page:
            struct.pack_into("=Q", page, 8, time.monotonic_ns())
            until(lambda: struct.unpack_from("=I", page, 64)[0], "the process answers")
            program.tell()
            writes = 0
            while not program_said(program):
                struct.pack_into("=Q", page, 8, time.monotonic_ns())
                word = drawn.choice([drawn.getrandbits(64), drawn.getrandbits(23) * 8, (1 << 64) - 8, 0])
                struct.pack_into("=Q", page, drawn.choice([0, 72, 72, 80, 4096 + drawn.randrange(1 << 19) * 8]), word)
                writes += 1
            assert program.line() == "well"
            assert writes > 100
        os.close(memfd)


def program_said(program: Any) -> bool:
    return bool(select.select([program.process.stdout], [], [], 0)[0])


def test_an_observer_that_is_gone_is_forgotten():
    """With its page: a stopped one has not looked for a while."""
    with running(TALK) as program:
        program.line()
        memfd = offer(program.pid, TAP_SIZE)
        with mmap.mmap(memfd, TAP_SIZE) as page:
            struct.pack_into("=QQI", page, 0, 0, time.monotonic_ns(), 1 << 16)
            until(lambda: struct.unpack_from("=I", page, 64)[0], "the process answers")
            do(program, "near.sendall(b'seen'); far.recv(9)")
            written = struct.unpack_from("=Q", page, 72)[0]
            struct.pack_into("=Q", page, 8, 0)  # it has not looked since long ago
            do(program, "near.sendall(b'unseen'); far.recv(9)")
            assert struct.unpack_from("=Q", page, 72)[0] == written > 0
        os.close(memfd)
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'y'); far.recv(9)")
            assert [each.data for each in seen.packets(last=True)] == [b"y"]
