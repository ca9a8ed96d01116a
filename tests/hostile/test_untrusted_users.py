"""A stranger who sends descriptors whose close takes for ever harms itself only."""

import contextlib
import os
import socket

import pytest
from harness.hostile_peer import HELLO, MAGIC, VERSION
from harness.pairs import KernelSocket, until
from harness.processes import Program, running
from harness.untrusted_users import (
    BAITS,
    LOOK,
    SENDERS,
    answers,
    asked_at,
    await_answer,
    send_bait,
    send_several,
    stopped,
    stranger,
)

from fastsock.tools import introspection

pytestmark = pytest.mark.usefixtures("bounded")


HELLO_OF_A_STRANGER = HELLO.pack(MAGIC, VERSION, 0, 4096, b"x" * 16)

FORKS = """
    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        say("forked")
"""

ASKED = (
    FORKS
    + """
    fastsock.patch()
    with make_pair("ring") as pair:
        say("moved")
        told()
        fork()
        move(*pair)
        say(path_of(pair.near))
        told()
"""
)


def ask(name: bytes, bait: str, far: list[socket.socket], said: bytes = b"hello") -> None:
    with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(name)
        send_bait(sender, said, bait, far)


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("bait", BAITS)
def test_a_descriptor_that_lingers_holds_neither_requests_nor_forks(bait: str, sender: str) -> None:
    with running(ASKED) as program, contextlib.ExitStack() as stack:
        assert program.line() == "moved"
        name = asked_at(program)
        with stopped(program):
            stack.enter_context(stranger(sender, lambda far: ask(name, bait, far)))
        await_answer(name)
        program.tell()
        assert program.line() == "forked"
        assert program.line() == "ring"


QUEUED = 16
"""Things that wait for the one thread that drops what strangers sent: FS_REAPER_ROOM."""


def threads_of(program: Program) -> int:
    return len(os.listdir(f"/proc/{program.pid}/task"))


def descriptors_of(program: Program) -> int:
    return len(os.listdir(f"/proc/{program.pid}/fd"))


@pytest.mark.parametrize("sender", SENDERS)
def test_a_flood_holds_one_thread(sender: str) -> None:
    """The next message stays where it is, with all behind it, until the thread is free again."""
    with running(ASKED) as program:
        assert program.line() == "moved"
        name = asked_at(program)
        before = threads_of(program), descriptors_of(program)

        def ask_once(far: list[socket.socket]) -> None:
            with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.connect(name)
                send_several(to, b"hello", QUEUED - 1, far)

        def ask_often(far: list[socket.socket]) -> None:
            for _ in range(4):
                ask(name, "lingers", far)

        with contextlib.ExitStack() as stack:
            with stopped(program):
                stack.enter_context(stranger("same user", ask_once))
                stack.enter_context(stranger(sender, ask_often))
            until(lambda: threads_of(program) == before[0] + 1, "the thread is held")
            assert not answers(name)
            assert threads_of(program) == before[0] + 1
            program.tell()
            assert program.line() == "forked"
            assert program.line() == "ring"
        await_answer(name)
        until(lambda: (threads_of(program), descriptors_of(program)) == before, "all is given back")


def test_what_lies_behind_a_flood_is_answered_though_a_fork_came_meanwhile() -> None:
    """The next connection thread knows that something is left, which the kernel does not tell a second time."""
    with running(ASKED) as program, contextlib.ExitStack() as stack:
        assert program.line() == "moved"
        name = asked_at(program)

        def ask_often(far: list[socket.socket]) -> None:
            with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.connect(name)
                send_several(to, b"hello", QUEUED - 1, far)
            for _ in range(3):
                ask(name, "lingers", far)

        asker = stack.enter_context(KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM))
        asker.bind("")
        asker.settimeout(30)
        with contextlib.ExitStack() as held:
            before = threads_of(program)
            with stopped(program):
                held.enter_context(stranger("same user", ask_often))
            until(lambda: threads_of(program) == before + 1, "the thread is held")
            asker.sendto(LOOK, name)
            program.tell()
            assert program.line() == "forked"
            assert program.line() == "ring"
        assert asker.recv(10000)[8:16] == LOOK[8:16]


NAMED = (
    FORKS
    + """
    from harness.hostile_peer import hostile
    with hostile() as peer:
        peer.chat()
        say(peer.name.hex())
        told()
        with make_pair("ring") as pair:
            move(*pair)
            say(path_of(pair.near))
        fork()
        peer.victim.close()
        say("closed")
        told()
"""
)


def visit(name: bytes, bait: str, far: list[socket.socket], silent: bool) -> None:
    if silent:
        far.append(KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        far[-1].connect(name)
    visitor = KernelSocket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    visitor.connect(name)
    send_bait(visitor, HELLO_OF_A_STRANGER, bait, far)
    far.append(visitor)


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("bait", BAITS)
@pytest.mark.parametrize("silent", [False, True], ids=["first", "behind a silent one"])
def test_a_visitor_whose_descriptor_lingers_holds_no_call(silent: bool, bait: str, sender: str) -> None:
    """Behind one who is accepted and says nothing, it is still in the listener's queue when the name is withdrawn."""
    with running(NAMED) as program, contextlib.ExitStack() as stack:
        name = bytes.fromhex(program.line())
        with stopped(program):
            stack.enter_context(stranger(sender, lambda far: visit(name, bait, far, silent)))
        program.tell()
        assert [program.line() for _ in range(3)] == ["ring", "forked", "closed"]


def test_who_looks_from_outside_takes_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel lets sockets refuse them."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.setsockopt(socket.SOL_SOCKET, introspection.SO_PASSRIGHTS, 0)
        except OSError:
            pytest.skip("this kernel does not")
        said = []

        def send(asker: socket.socket, *_: object) -> list[object]:
            sender.connect(asker.getsockname())
            said.append(sender.send(b"hello"))
            with pytest.raises(PermissionError):
                socket.send_fds(sender, [b"hello"], [0])
            return []

        monkeypatch.setattr(introspection, "_query_all", send)
        assert introspection.query() == []
        assert said == [5]
