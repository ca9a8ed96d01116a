"""A fuzzer for everything that a peer can say to a live process: the hello at the meeting, requests and parcels to the
connection thread, words of the region at any moment, the kernel's stream, in any order.

    ./dev fuzz --seconds 600 [--seed S]       # a run, under AddressSanitizer (tests/hostile/fuzz/run)
    ./dev fuzz --case FILE ...                # these cases alone

The peer is tests/harness/hostile_peer.py's, the other end a socket of the instrumented package in this process. After
each case: nothing but an error of its own connection came of it, no call took longer than `PATIENCE`, every
descriptor and mapping has been given back, and a healthy connection of the same process carries bytes both ways over
the ring. The case that the process was at when it ended lies in the file `current.json` of the output folder.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import fcntl
import json
import logging
import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness import hostile_peer
from harness.hostile_peer import BACK, FIN, LEFT, RESET, SEALS, Peer, Region, holdings, holdings_at_rest
from harness.pairs import KernelSocket, Pair, make_pair, read_exactly, until

import fastsock
from hostile.fuzz.cases import Case, case_of

PATIENCE = 30
"""Seconds that a case may take, the waiting of the protocol for a peer that does not answer included."""

EXPECTED = (OSError, EOFError)
"""What a call of the program may raise: its own connection's errors."""


class Attack:
    """One case on its way: each method is an action."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.raw: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        self.faults: list[BaseException] = []

    def do(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    # ---- what the cases' data means

    def value(self, number: Any, bits: int = 64) -> int:
        """A number of a case, as this connection stands."""
        if isinstance(number, list):
            base, distance = number
            peer = self.peer
            bases = {"posted": peer.posted, "sent": peer.sent + 1, "theirs": self.theirs_posted(),
                     "fin": FIN | peer.posted, "reset": RESET | peer.posted, "back": BACK | peer.posted}  # fmt: skip
            number = bases[base] + distance
        return int(number) & (1 << bits) - 1

    def theirs_posted(self) -> int:
        """Descriptors that the victim has posted, as far as the slots tell."""
        region = self.peer.region
        if region is None:
            return 0
        return max(region.commit(1 - self.peer.side, slot)[0] for slot in range(region.slots))

    @contextlib.contextmanager
    def descriptors(self, kinds: list[str]) -> Iterator[list[int]]:
        made = [self.descriptor(kind) for kind in kinds]
        try:
            yield made
        finally:
            for fd in made:
                os.close(fd)

    def descriptor(self, kind: str) -> int:
        if kind in ("memfd", "unsealed", "sealed", "big"):
            fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, (1 << 26) + 1 if kind == "big" else Region.size_of(self.peer.window, self.peer.chunk))
            if kind != "unsealed":
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            return fd
        if kind == "pipe":
            reader, writer = os.pipe()
            os.close(writer)
            return reader
        if kind == "socket":
            return KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()
        if kind == "eventfd":
            return os.eventfd(0, os.EFD_NONBLOCK)
        return os.open("/dev/null" if kind == "file" else "/", os.O_RDONLY)

    # ---- the meeting

    def meet(self) -> None:
        if self.peer.region is None and self.peer.control is None:
            self.peer.meet()

    def knock(self) -> None:
        if self.peer.side == 0 and self.peer.control is None:
            self.peer.knock()

    def await_hello(self) -> None:
        if self.peer.side == 1 and self.peer.region is None:
            self.peer.await_hello()

    def hello(self, said: dict[str, Any]) -> None:
        peer = self.peer
        if peer.control is None:
            return
        made: list[int] = []
        if peer.region is None and "sealed" in said["fds"]:
            made = [peer.make_region(said.get("memfd"))]
            if "header" in said and peer.region is not None and peer.region.size >= 128:
                field, value = said["header"]
                peer.region[field] = value & (1 << 8 * hostile_peer.REGION[field][1]) - 1
        try:
            kinds = [kind for kind in said["fds"] if kind != "sealed" or not made]
            with self.descriptors(kinds) as others:
                if "raw" in said:
                    socket.send_fds(peer.control, [bytes.fromhex(said["raw"]) or b"\0"], made + others)
                else:
                    limits = {"magic": 64, "version": 32, "reuse": 32, "size": 64}
                    lies = {name: said[name] & (1 << bits) - 1 for name, bits in limits.items() if name in said}
                    peer.say_hello(made + others, **lies)
        finally:
            for fd in made:
                os.close(fd)
        self.send(1, 0)
        self.recv(1, 0)

    def control(self, text: str) -> None:
        """Something after the hello, or an answer that is none."""
        if self.peer.control is not None:
            self.peer.control.send(bytes.fromhex(text) or b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    # ---- the region

    def move(self) -> None:
        self.peer.move()

    def consent(self) -> None:
        self.peer.consent()

    def half(self, whose: str) -> int:
        return self.peer.side if whose == "mine" else 1 - self.peer.side

    def set(self, whose: str, field: str, number: Any) -> None:
        region = self.peer.region
        if region is not None and region.size >= 4096:
            region.set(self.half(whose), field, self.value(number, 8 * hostile_peer.HALF[field][1]))

    def header(self, field: str, number: Any) -> None:
        region = self.peer.region
        if region is not None and region.size >= 4096:
            region[field] = self.value(number, 8 * hostile_peer.REGION[field][1])

    def word(self, at: int, number: Any) -> None:
        region = self.peer.region
        if region is not None and region.size >= 4096:
            region._words[4][at % (region.size // 4)] = self.value(number, 32)

    def post(self, length: int, lies: dict[str, Any]) -> None:
        peer = self.peer
        if peer.region is None or peer.region.size < Region.size_of(peer.window, peer.chunk):
            return
        widths = {"seq": 32, "length": 16, "type": 8, "state": 8, "offset": 32, "ack": 32}
        peer.post(b"x" * min(length, peer.chunk), **{name: self.value(v, widths[name]) for name, v in lies.items()})

    def wake(self) -> None:
        if self.peer.region is not None:
            self.peer.wake()

    def scribble(self, seed: int, times: int) -> None:
        """Words anywhere in the lines, while a call of the victim's runs."""
        rng = random.Random(seed)

        def write() -> None:
            for _ in range(times):
                self.word(rng.randrange(16, 1024), rng.choice([0, 1, 2, rng.getrandbits(3), rng.getrandbits(32)]))
                time.sleep(0.0001)

        self.start(write)
        self.send(2000, 0)
        self.recv(5000, 0)
        self.threads.pop().join()

    # ---- requests

    def request(self, side: str, length: int, kinds: list[str]) -> None:
        with self.descriptors(kinds) as fds:
            self.say({"right": 1 - self.peer.side, "other": self.peer.side, "third": 7}[side], length, fds)

    def say(self, side: int, length: int, fds: list[int]) -> None:
        if self.peer.region is None or self.peer.region.size < 4096:
            return
        token = self.peer.region[f"asks{1 - self.peer.side}"]
        text = (self.peer.request(side) + bytes(400))[:length]
        with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"{hostile_peer.ASK_NAME}{token:016x}")
            if fds:
                socket.send_fds(sender, [text], fds, socket.MSG_DONTWAIT)
            else:
                sender.send(text, socket.MSG_DONTWAIT)

    def parcel(self, length: int, sealed: bool) -> None:
        fd = os.memfd_create("parcel", os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, length)
            if sealed:
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            self.say(1 - self.peer.side, hostile_peer.REQUEST.size, [fd])
        finally:
            os.close(fd)

    def leave(self) -> None:
        """Steps of a peer that leaves."""
        self.set("theirs", "ready", LEFT)
        self.request("right", hostile_peer.REQUEST.size, [])

    def go_back(self, distance: int) -> None:
        self.set("mine", "fin", ["back", distance])
        self.wake()

    # ---- the victim

    def recv(self, length: int, flags: int) -> None:
        with contextlib.suppress(*EXPECTED):
            self.peer.victim.recv(length, flags)

    def send(self, length: int, flags: int) -> None:
        with contextlib.suppress(*EXPECTED):
            self.peer.victim.send(b"v" * length, flags)

    def sendall(self, length: int) -> None:
        with contextlib.suppress(*EXPECTED):
            self.peer.victim.sendall(b"v" * length)

    def start(self, function: Any, *arguments: Any) -> None:
        def run() -> None:
            try:
                function(*arguments)
            except BaseException as fault:
                self.faults.append(fault)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def recv_in_thread(self, length: int) -> None:
        self.start(self.recv, length, 0)

    def sendall_in_thread(self, length: int) -> None:
        self.start(self.sendall, length)

    def fileno(self) -> None:
        self.peer.victim.fileno()

    def detach(self) -> None:
        if self.peer.victim.fileno() >= 0:
            self.raw.append(KernelSocket(fileno=self.peer.victim.detach()))

    def shutdown(self, how: int) -> None:
        with contextlib.suppress(*EXPECTED):
            self.peer.victim.shutdown(how)

    def timeout(self, seconds: float) -> None:
        with contextlib.suppress(*EXPECTED):
            self.peer.victim.settimeout(seconds)

    def buffers(self, length: int) -> None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(*EXPECTED):
                self.peer.victim.setsockopt(socket.SOL_SOCKET, option, length)

    def close(self) -> None:
        self.peer.victim.close()

    # ---- the kernel's connection, the peer's end

    def tcp_send(self, length: int, flags: int) -> None:
        self.peer.sent += self.peer.tcp.send(b"t" * length, flags | socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def tcp_recv(self) -> None:
        self.peer.tcp.recv(1 << 20, socket.MSG_DONTWAIT)

    def tcp_end(self, how: str) -> None:
        tcp = self.peer.tcp
        if how == "reset":
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how in ("reset", "close"):
            tcp.close()
        else:
            tcp.shutdown(socket.SHUT_WR if how == "write" else socket.SHUT_RDWR)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    # ---- the end

    def finish(self) -> None:
        self.peer.tcp.close()
        for thread in self.threads:
            thread.join()
        for sock in self.raw:
            sock.close()


def run_case(case: Case) -> None:
    """Does what the case says; what the peer cannot do any more is left out. Raises what should not be."""
    with hostile_peer.hostile(case["publishes"], window=case["window"], chunk=case["chunk"]) as peer:
        attack = Attack(peer)
        peer.tcp.settimeout(1)
        peer.victim.settimeout(1)
        try:
            for name, *arguments in case["actions"]:
                try:
                    attack.do(name, *arguments)
                except (OSError, AssertionError, AttributeError, IndexError, ValueError, struct.error):
                    # Of the peer: its socket is closed, or the victim has not met it. The victim's own calls are
                    # inside methods that let nothing through but what a program expects.
                    if name in ("recv", "send", "sendall", "shutdown", "timeout", "buffers", "close", "fileno"):
                        raise
                if name in ("meet", "knock", "await_hello"):
                    attack.timeout(0.02)
        finally:
            attack.finish()
        if attack.faults:
            raise attack.faults[0]


def check_health(pair: Pair) -> None:
    """The other connection of this process."""
    for sender, receiver in ((pair.near, pair.far), (pair.far, pair.near)):
        sender.sendall(b"healthy" * 300)
        assert read_exactly(receiver, 2100) == b"healthy" * 300
    assert fastsock.path_of(pair.near).path == fastsock.path_of(pair.far).path == "ring"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wire")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="where current.json is written")
    parser.add_argument("--corpus", type=Path, help="folder of cases")
    parser.add_argument("--case", type=Path, nargs="*", default=[], help="run these alone")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    logging.getLogger("fastsock").setLevel(logging.CRITICAL)  # a line for each violation
    paths = arguments.case or sorted(arguments.corpus.glob("*.json"))
    corpus: list[Case] = [json.loads(path.read_text()) for path in paths]
    current = arguments.out / "current.json"
    end = time.monotonic() + arguments.seconds
    number = 0
    with make_pair("ring") as pair:
        before = holdings_at_rest()
        while number < len(corpus) or (not arguments.case and time.monotonic() < end):
            case = corpus[number] if number < len(corpus) else case_of(arguments.seed, number, corpus)
            current.write_text(json.dumps(case))
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            run_case(case)
            until(lambda: holdings() == before, "every descriptor and mapping is given back")
            check_health(pair)
            faulthandler.cancel_dump_traceback_later()
            number += 1
    current.unlink()
    print(f"wire: {number} cases, {len(corpus)} of them from the corpus, seed {arguments.seed}: no finding")


if __name__ == "__main__":
    main()
