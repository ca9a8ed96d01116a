"""Two versions of the protocol that meet: both know it at once, stay on kernel TCP, and say why at both ends.

What the scripted peer of another version does here is what docs/protocol.md ("Versions") asks of every later one.
"""

import contextlib
import os
import re
import shlex
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.hostile_peer import (
    BACK,
    HELLO,
    LEFT,
    MAGIC,
    VERSION,
    Peer,
    as_nobody,
    events,
    holdings,
    holdings_at_rest,
    hostile,
    on_ring,
    violations,
)
from harness.pairs import KernelSocket, Task, deadline, listening, make_pair, read_exactly, until
from harness.processes import MadeOnce, ended

import fastsock
from fastsock import path_events
from fastsock._native import libc_front
from fastsock.tools import checks, introspection, ss

ROOT = Path(__file__).parents[2]
REASON = path_events.Reason.VERSION
STAYS = fastsock.Path("tcp", REASON)
REFUSAL = struct.Struct("=B3xI")  # why, the version of who refuses


@pytest.fixture(autouse=True)
def bounded(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever the peer's version: no violation is told, and nothing is left behind."""
    caplog.set_level("INFO", "fastsock")
    with make_pair("ring"):
        pass  # what a process makes once is there
    before = holdings_at_rest()
    with deadline(60):
        yield
        until(lambda: holdings() == before, "nothing is left behind")
    assert violations(caplog) == []
    assert events(caplog, "fastsock.path") == []  # DEBUG


def both_ways(peer: Peer) -> None:
    """The connection carries bytes in both directions, and all of them."""
    for size in (1, 100_000):
        sent = os.urandom(size)
        for write, read in ((peer.tcp, peer.victim), (peer.victim, peer.tcp)):
            writing = Task(write.sendall, sent)
            assert read_exactly(read, size) == sent
            writing.result()


def stays(peer: Peer, reason: str = REASON) -> bool:
    """Whether the victim has decided so."""
    peer.chat()
    return fastsock.path_of(peer.victim) == fastsock.Path("tcp", reason)


def stayed() -> int:
    """Connections of this process that another version has kept on kernel TCP."""
    return fastsock.stats().fallback_reasons.get(REASON, 0)


def hello(version: int, size: int = HELLO.size) -> bytes:
    """A hello of this version, and of this size."""
    return (HELLO.pack(MAGIC, version, 0xFFFFFFFF, 1 << 63, b"?" * 16) + bytes(60_000))[:size]


VERSIONS = [VERSION + 1, VERSION - 1, 0, 0xFFFFFFFF]
SIZES = {"as ours": HELLO.size, "larger": 4 * HELLO.size, "very large": 60_000, "no more than the first bytes": 12}


# ---- another version seeks


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", SIZES)
def test_a_seeker_of_another_version(version: int, size: str) -> None:
    before = stayed()
    with hostile() as peer:
        control = peer.knock()
        exit_, entry = os.pipe()
        socket.send_fds(control, [hello(version, SIZES[size])], [entry, entry, peer.tcp.fileno()])
        os.close(entry)
        why, theirs = REFUSAL.unpack(control.recv(100))
        assert (chr(why), theirs) == ("o", VERSION)
        assert control.recv(100) == b""
        assert Task(os.read, exit_, 1).result() == b""  # it has closed what came with the hello
        os.close(exit_)
        until(lambda: stays(peer), "the victim knows it")
        both_ways(peer)
        assert fastsock.path_of(peer.victim) == STAYS
        assert stayed() == before + 1
        with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as again, pytest.raises(ConnectionRefusedError):
            again.connect(peer.name)


# ---- another version publishes


REFUSALS = {
    "a letter alone": b"o",
    "with the version": REFUSAL.pack(ord("o"), VERSION + 1),
    "with more than that": REFUSAL.pack(ord("o"), VERSION + 1) + bytes(1000),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_publisher_of_another_version(refusal: str) -> None:
    before = stayed()
    with hostile(publishes=True) as peer, KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(peer.name)
        listener.listen(4)
        listener.setblocking(False)
        visitors: list[socket.socket] = []

        def visited() -> bool:
            peer.chat()
            with contextlib.suppress(BlockingIOError):
                visitors.append(listener.accept()[0])
            return bool(visitors)

        until(visited, "the victim comes")
        with visitors[0] as visitor:
            visitor.settimeout(10)
            said, fds, _, _ = socket.recv_fds(visitor, 12, 16)
            for fd in fds:
                os.close(fd)
            assert struct.unpack("=QI", said) == (MAGIC, VERSION)  # which every version can read
            visitor.send(REFUSALS[refusal])
            until(lambda: stays(peer), "the victim knows it")
        both_ways(peer)
        for _ in range(200):
            peer.chat()
        with pytest.raises(BlockingIOError):
            listener.accept()  # it does not come again
        assert fastsock.path_of(peer.victim) == STAYS
        assert stayed() == before + 1


# ---- both are programs of fastsock's core


@pytest.fixture(scope="module")
def programs(made_once: MadeOnce, release: Path) -> dict[str, Path]:
    def build(folder: Path, version: int, core: Path) -> None:
        flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O1", "-g"]
        source, into = ROOT / "tests/native/versions.c", folder / "versions"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        ended(
            [*compiler, *flags, f"-DFS_VERSION={version}", f"-I{ROOT / 'core'}", source, core, "-pthread", "-o", into]
        )

    def build_newer(folder: Path) -> None:
        ended([ROOT / "core/compile", folder, "-O0", "-g0", f"-DFS_VERSION={VERSION + 97}"])
        build(folder, VERSION + 97, folder / "libfastsock.a")

    ours = made_once("version", lambda folder: build(folder, VERSION, release))
    return {"ours": ours / "versions", "newer": made_once("newer-version", build_newer) / "versions"}


@pytest.mark.parametrize(
    ("seeks", "publishes"), [("ours", "ours"), ("newer", "newer"), ("ours", "newer"), ("newer", "ours")]
)
def test_two_processes(seeks: str, publishes: str, programs: dict[str, Path]) -> None:
    """The same versions move, and different ones stay; both lose no byte. Which versions they are is compiled in."""
    name = f"fastsock/test/{os.urandom(8).hex()}"
    with listening(False) as listener, KernelSocket() as near:
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:
            running = [
                subprocess.Popen(
                    [programs[which], str(sock.fileno()), str(role), name],
                    pass_fds=[sock.fileno()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
                for role, (which, sock) in enumerate(((seeks, near), (publishes, far)))
            ]  # fmt: skip
    for which, process in zip((seeks, publishes), running, strict=True):
        said, wrong = process.communicate(timeout=70)
        assert (process.returncode, wrong) == (0, "")
        found = re.fullmatch(r"version (\d+), (\w+), reason (\d+), [1-9]\d+ bytes\n", said)
        assert found
        stays = ("tcp", list(libc_front.REASONS).index("VERSION") + 1) if seeks != publishes else ("ring", 0)
        version = VERSION if which == "ours" else VERSION + 97
        assert (int(found[1]), found[2], int(found[3])) == (version, *stays)


# ---- trust


@pytest.mark.parametrize("proven", [True, False], ids=["the peer", "a stranger"])
def test_another_users_process_of_another_version(proven: bool) -> None:
    """trust="any": only who has the other end of the connection can keep it on kernel TCP."""
    if os.geteuid():
        pytest.skip("only root becomes another user")
    with fastsock.configure(trust="any"), hostile() as peer:
        peer.chat()
        exit_, entry = os.pipe()

        def visit() -> None:
            with KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor, KernelSocket() as other:
                visitor.settimeout(5)
                visitor.connect(peer.name)
                proof = peer.tcp if proven else other
                socket.send_fds(visitor, [hello(VERSION + 1, 200)], [entry, entry, entry, proof.fileno()])
                os.write(entry, visitor.recv(1) or b"nothing")

        os.waitpid(as_nobody(visit), 0)
        os.close(entry)
        assert os.read(exit_, 100) == (b"o" if proven else b"u")
        assert Task(os.read, exit_, 1).result() == b""
        os.close(exit_)
        if proven:
            until(lambda: stays(peer), "the victim knows it")
            both_ways(peer)
        else:
            peer.meet()
            peer.move()
            peer.post()
            assert peer.victim.recv(4) == b"ring"


# ---- names


def test_requests_of_another_version_are_ignored() -> None:
    """Whatever their size, and with what they bring; one of ours behind them is answered."""
    with on_ring(publishes=False) as peer:
        victim = 1 - peer.side
        peer.region.set(victim, "ready", LEFT)  # a request asks the victim to send on through the kernel
        for version in VERSIONS:
            request = peer.request(victim, version=version)
            for said in (request, request + bytes(500), request[:12]):
                exit_, entry = os.pipe()
                peer.ask(entry, said=said)
                os.close(entry)
                assert Task(os.read, exit_, 1).result() == b""
                os.close(exit_)
        assert peer.region.get(victim, "fin") == 0
        peer.ask()
        until(lambda: peer.region.get(victim, "fin") & ~0xFFFFFFFF == BACK, "the victim answers")


# ---- who looks from outside


class Newer:
    """A process whose connection thread answers as one of a later version may: only the head is known."""

    def __init__(self) -> None:
        self.name = b"\0fastsock/ask/" + os.urandom(8).hex().encode()
        self.socket = KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.bind(self.name)

    def answer(self) -> None:
        data, _, _, back = self.socket.recvmsg(100)
        magic, tag, kind, _ = introspection.QUERY.unpack(data)
        assert (magic, kind) == (introspection.LOOK_MAGIC, introspection.PROCESS)
        self.socket.sendto(
            introspection.SEEN.pack(introspection.SEEN_MAGIC, tag, kind, 0, 77, VERSION + 1) + b"?" * 501, back
        )


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[introspection.Process]]]:
    """Looks at it."""
    other = Newer()
    monkeypatch.setattr(introspection, "names", lambda pids: [other.name])

    def look() -> list[introspection.Process]:
        answers = Task(other.answer)
        seen = introspection.query(patience=10)
        answers.result()
        return seen

    with other.socket:
        yield look


def test_ss_shows_a_process_of_another_version(newer: Callable[[], list[introspection.Process]]) -> None:
    [process] = newer()
    assert (process.pid, process.protocol, process.connections) == (os.getpid(), VERSION + 1, ())
    assert process.total("bytes_sent") == 0
    [_, remark] = ss.table([process])
    assert f"protocol version {VERSION + 1}, not {VERSION}" in remark


def test_doctor_tells_of_it(newer: Callable[[], list[introspection.Process]], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = newer()
    monkeypatch.setattr(checks.introspection, "query", lambda: seen)
    [_, finding] = checks.running()
    assert finding.level == checks.WARN
    assert str(os.getpid()) in finding.says
    assert "install the same version" in finding.do
