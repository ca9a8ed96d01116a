"""Event sets: descriptors follow loops and processes, not connections; a loop is told without a page too."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.aio.kit import LOOPS
from harness.hostile_peer import ASK_NAME, SEALS, VERSION, Peer, on_ring, open_descriptors
from harness.pairs import KernelSocket, deadline, until
from harness.processes import running

OFFER = struct.Struct("=QII16sII")
OFFER_MAGIC = int.from_bytes(b"fs-set01", "little")
PAGE = 4096
KNOWN = 4
"""Where a page says that the process has it."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(120):
        yield


# ---- the program closes our eventfds ---------------------------------------------------------------------------

CLOSED = """
import asyncio, ctypes, resource, tempfile
from conformance.aio.kit import World

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
libc = ctypes.CDLL(None)
stranger = tempfile.TemporaryFile()
stranger.write(b"0123456789abcdef")
stranger.flush()
stranger.seek(4)

def take_eventfds(how):
    for name in os.listdir("/proc/self/fd"):
        if int(name) < 1024 - 64:
            continue  # uvloop's
        try:
            if os.readlink(f"/proc/self/fd/{name}") != "anon_inode:[eventfd]":
                continue
        except FileNotFoundError:
            continue
        (libc.close(int(name)) if how == "close" else libc.dup2(stranger.fileno(), int(name)))

async def exchange(world, near, far, rounds):
    for number in range(rounds):
        near.transport.write(b"%04d" % number)
        assert await world.received(far, 4) == b"%04d" % number
        await asyncio.sleep(0.003)  # the loop sleeps
        far.transport.write(b"%04d" % number)
        assert await world.received(near, 4) == b"%04d" % number

async def main():
    pairs = [await world.pair() for _ in range(3)]
    for pair in pairs:
        await exchange(world, *pair, 5)
    take_eventfds(sys.argv[2])
    for pair in [*pairs, await world.pair()]:
        await exchange(world, *pair, 20)
        await exchange(world, *reversed(pair), 20)
    say(f"{stranger.tell()} {os.pread(stranger.fileno(), 100, 0).decode()}")

world = World(sys.argv[1], "ring")
with fastsock.configure(poll_us=0):
    world.run(main(), seconds=60)
"""


@pytest.mark.parametrize("how", ["close", "file"])
@pytest.mark.parametrize("loop_kind", LOOPS)
def test_a_loop_whose_eventfds_are_closed_goes_on(loop_kind: str, how: str) -> None:
    """With the connections that it had and with new ones; and a file that takes the number is left alone."""
    with running(CLOSED, loop_kind, how) as program:
        assert program.line(60) == "4 0123456789abcdef"


# ---- offers ----------------------------------------------------------------------------------------------------


class Owner:
    """Somebody who offers event sets to the process of a victim: this one."""

    def __init__(self, peer: Peer, token: int = 0x1234567) -> None:
        self.peer = peer
        self.sock = KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if token:
            self.sock.bind(f"{ASK_NAME}{token:016x}")
        self.pages: list[mmap.mmap] = []

    def page(self, size: int = PAGE, seals: int = SEALS) -> int:
        memfd = os.memfd_create("page", os.MFD_ALLOW_SEALING)
        os.ftruncate(memfd, size)
        if size:
            self.pages.append(mmap.mmap(memfd, size))
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, seals)
        return memfd

    def offer(self, fds: list[int], number: int = 1, **lies: int) -> None:
        victim = 1 - self.peer.side
        assert self.peer.region is not None
        said = {"magic": OFFER_MAGIC, "version": VERSION, "side": victim, **lies}
        data = OFFER.pack(said["magic"], said["version"], said["side"], self.peer.id, number, 0)
        self.sock.connect(f"{ASK_NAME}{self.peer.region[f'asks{victim}']:016x}")
        socket.send_fds(self.sock, [data], fds)
        for fd in fds:
            os.close(fd)

    def is_known(self) -> bool:
        return bool(self.pages[-1][KNOWN])

    def close(self) -> None:
        self.sock.close()
        for page in self.pages:
            page.close()


def eventfd(flags: int = os.EFD_NONBLOCK) -> int:
    return os.eventfd(0, flags)


def test_a_sound_offer_is_kept() -> None:
    with on_ring(False) as peer, contextlib.closing(Owner(peer)) as owner:
        owner.offer([owner.page(), eventfd()])
        until(owner.is_known, "the page is known")


UNSOUND = {
    "not sealed": lambda owner: [owner.page(seals=fcntl.F_SEAL_SHRINK), eventfd()],
    "larger": lambda owner: [owner.page(size=2 * PAGE), eventfd()],
    "smaller": lambda owner: [owner.page(size=100), eventfd()],
    "a pipe": lambda owner: [owner.page(), os.pipe()[1]],
    "an eventfd that blocks": lambda owner: [owner.page(), eventfd(0)],
    "two pages": lambda owner: [owner.page(), owner.page()],
    "one descriptor": lambda owner: [owner.page()],
    "three": lambda owner: [owner.page(), eventfd(), eventfd()],
}


@pytest.mark.parametrize("what", UNSOUND)
def test_an_unsound_offer_is_refused(what: str) -> None:
    """The process that got it keeps nothing of it, and answers others. (Two are the last page here, and the eventfd
    that is kept.)"""
    with on_ring(False) as peer, contextlib.closing(Owner(peer)) as owner:
        owner.offer([owner.page(), eventfd()])
        until(owner.is_known, "the page is known")
        fds = UNSOUND[what](owner)
        before = open_descriptors() - len(fds)
        owner.offer(fds, number=2)
        page = owner.pages[-1]
        owner.offer([owner.page(), eventfd()], number=3)
        until(owner.is_known, "the page is known")
        assert not page[KNOWN]
        until(lambda: open_descriptors() <= before + 2, "its descriptors are closed")


@pytest.mark.parametrize("lie", [{"magic": 1}, {"version": 2}, {"side": 7}], ids=["magic", "version", "side"])
def test_an_offer_that_lies_is_none(lie: dict[str, int]) -> None:
    with on_ring(False) as peer, contextlib.closing(Owner(peer)) as owner:
        owner.offer([owner.page(), eventfd()], **lie)
        page = owner.pages[-1]
        owner.offer([owner.page(), eventfd()])
        until(owner.is_known, "the page is known")
        assert not page[KNOWN]


@pytest.mark.parametrize("token", [0, 0x1234568])
def test_nobody_offers_in_the_name_of_another_process(token: int) -> None:
    """It comes from a socket that has no token in its name. (An even number is a far peer's.)"""
    with on_ring(False) as peer, contextlib.closing(Owner(peer, token=token)) as owner:
        owner.offer([owner.page(), eventfd()])
        with contextlib.closing(Owner(peer)) as other:
            other.offer([other.page(), eventfd()])
            until(other.is_known, "the page is known")
        assert not owner.is_known()


def test_offers_without_end_are_bounded() -> None:
    """Of one process, and of many."""
    with on_ring(False) as peer, contextlib.ExitStack() as stack:
        one = stack.enter_context(contextlib.closing(Owner(peer)))
        before = open_descriptors()
        for number in range(100):
            one.offer([one.page(), eventfd()], number=number)
        known = sum(page[KNOWN] for page in one.pages)
        assert 0 < known <= 64
        share = int(Path("/proc/self/limits").read_text().split("Max open files")[1].split()[0])
        for token in range(1, 400, 2):
            with contextlib.closing(Owner(peer, token)) as owner:
                owner.offer([owner.page(), eventfd()])
        assert open_descriptors() - before <= max(share // 16, share // 8) + 250


def test_sets_of_processes_that_have_ended_are_let_go_of() -> None:
    """However they ended: their sockets are closed, and nobody says more. The set of a process that runs on stays."""
    with on_ring(False) as peer, contextlib.ExitStack() as stack:
        owners = [stack.enter_context(contextlib.closing(Owner(peer, token))) for token in range(0x5001, 0x50A1, 2)]
        for owner in owners:
            owner.offer([owner.page(), eventfd()])
            until(owner.is_known, "the page is known")
            if owner is not owners[0]:
                owner.sock.close()
        assert owners[0].is_known()
        assert sum(owner.is_known() for owner in owners) <= 20


def test_a_peer_that_has_no_page_of_ours_tells_the_loop_by_its_thread() -> None:
    """A peer of ours whose process takes no offers: it has no numbers for them."""
    with running(SHORT_OF_NUMBERS) as program:
        assert program.line(60) == "told"


SHORT_OF_NUMBERS = """
    import asyncio
    from conformance.aio.kit import World
    from fastsock._native import control
    world = World("asyncio", "ring")
    async def main():
        # All of our share but two: for the set and its eventfd. What comes with an offer finds no number.
        made = []
        near, far = await world.pair()
        try:
            while True:
                made.append(control.new_eventfd())
        except OSError:
            pass
        others = [await world.pair(settle=False) for _ in range(3)]
        for number in range(50):
            near.transport.write(b"%04d" % number)
            assert await world.received(far, 4) == b"%04d" % number
            await asyncio.sleep(0.002)
            far.transport.write(b"%04d" % number)
            assert await world.received(near, 4) == b"%04d" % number
        say("told")
    with fastsock.configure(poll_us=0):
        world.run(main(), seconds=50)
"""
