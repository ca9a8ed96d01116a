"""Groups and channels of processes in different network namespaces that see one folder (the setting `rendezvous_dir`):
each in a container of its own, with its own process ids."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from harness.hosts import Container
from harness.pairs import eventually
from harness.processes import Program

BEGINS = """
from fastsock import AsyncChannel, AsyncGroup, Channel, Group
import asyncio, select
NAME = sys.argv[1]
def members(group, count):
    until = time.monotonic() + SECONDS
    while group.info()["members"] != count:
        assert time.monotonic() < until, group.info()
        time.sleep(0.001)
"""


def program(text: str, where: Container, name: str, folder: Path | None) -> Program:
    variables = {"FASTSOCK_RENDEZVOUS_DIR": str(folder)} if folder else {}
    return Program(BEGINS + text.replace("\n        ", "\n"), name, where.address, within=where.within, **variables)


READS = """
        group = Group(NAME, slow="block", kept=8)
        say("joined")
        for message in group:
            if bytes(message) == b"end": break
            say(f"{len(message)} {memoryview(message)[-1]}")
        say("at the end"); told()
        for i in range(20): group.send(b"alone", SECONDS), group.receive(SECONDS)
        say(group.info()["members"])
        """


def test_members_in_other_namespaces_get_all_messages(three: list[Container], folder: Path, name: str) -> None:
    """Small ones and lent ones, while they sleep."""
    writes = """
        group = Group(NAME, slow="block", reads=False)
        members(group, 3)
        for i in range(50):
            time.sleep(0.001 * (i % 3))
            with group.lend(100 * i + 1) as lent: memoryview(lent)[-1] = i
        group.send(b"end")
        say(group.info()["messages"])
        """
    with program(READS, three[0], name, folder) as first, program(READS, three[1], name, folder) as second:
        assert (first.line(), second.line()) == ("joined", "joined")
        assert {each.name[:4] for each in folder.iterdir()} == {"grp-"}
        with program(writes, three[2], name, folder) as writer:
            for i in range(50):
                assert first.line() == second.line() == f"{100 * i + 1} {i}"
            assert writer.line() == "51"
            assert writer.wait() == 0
        assert (first.line(), second.line()) == ("at the end", "at the end")
        second.kill()
        first.tell()
        assert first.line() == "1"
        assert first.wait() == 0
    eventually(lambda: os.listdir(folder), [])


@pytest.mark.parametrize("loop", ["select", "asyncio", "fastsock"])
def test_event_loops_are_woken(three: list[Container], folder: Path, name: str, loop: str) -> None:
    """By a bell that has its name in the folder, too."""
    answers = """
        async def answer():
            async with AsyncGroup(NAME) as group:
                say("joined")
                async for message in group:
                    if not message.own: await group.send(bytes(message) + b"!")
        def select_and_answer():
            group = Group(NAME)
            say("joined")
            while select.select([group], [], []):
                while message := group.take():
                    if not message.own: group.send(bytes(message) + b"!")
        kind = os.environ["LOOP"]
        select_and_answer() if kind == "select" else (fastsock.run if kind == "fastsock" else asyncio.run)(answer())
        """.replace('os.environ["LOOP"]', repr(loop))
    asks = """
        group = Group(NAME)
        for i in range(100):
            time.sleep(0.0005 * (i % 5))
            group.send(b"%d" % i)
            assert bytes(group.receive(SECONDS)) == b"%d" % i
            assert bytes(group.receive(SECONDS)) == b"%d!" % i
        say("done")
        """
    with program(answers, three[0], name, folder) as server:
        assert server.line() == "joined"
        with program(asks, three[1], name, folder) as client:
            assert client.line() == "done"


def test_a_folder_is_a_place_of_its_own(three: list[Container], folder: Path, name: str) -> None:
    """Groups of one name, in the folder and without it."""
    text = """
        group = Group(NAME)
        say(group.info()["members"]); told()
        """
    with (
        program(text, three[0], name, folder) as far,
        program(text, three[0], name, None) as near,
        program(text, three[1], name, None) as elsewhere,
    ):
        assert (far.line(), near.line(), elsewhere.line()) == ("1", "1", "1")
        with program(text, three[1], name, folder) as second:
            assert second.line() == "2"
            second.tell()
            assert second.wait() == 0
        for each in (far, near, elsewhere):
            each.tell()


def test_a_forked_child_goes_on_as_the_member(three: list[Container], folder: Path, name: str) -> None:
    """Others find it by the name that its parent had."""
    text = """
        group = Group(NAME)
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        group.send(b"from the child")
        say("joined")
        members(group, 2)
        group.send(b"welcome")
        told()
        """
    comes = """
        group = Group(NAME)
        say(bytes(group.receive(SECONDS)).decode())
        """
    # (The child is the first process of its namespace no more if its parent is not: a shell is.)
    with Program(
        BEGINS + text.replace("\n        ", "\n"),
        name,
        within=[*three[0].within, "sh", "-c", '"$@"; read line', "sh"],
        FASTSOCK_RENDEZVOUS_DIR=str(folder),
    ) as first:
        assert first.line() == "joined"
        with program(comes, three[1], name, folder) as second:
            assert second.line() == "welcome"


def test_names_that_were_left_behind_are_taken_over_by_one(three: list[Container], folder: Path, name: str) -> None:
    """All members are killed, and many come at once, in all namespaces: they make one group."""
    text = """
        told()
        group = Group(NAME, slow="block")
        members(group, 9)
        say("all"); told()
        """
    for _ in range(3):
        programs = [program(text, three[i % 3], name, folder) for i in range(9)]
        try:
            for each in programs:
                each.tell()
            assert [each.line() for each in programs] == ["all"] * 9
            assert len(os.listdir(folder)) == 18
        finally:
            for each in programs:
                each.kill()
                each.close()
    assert len(os.listdir(folder)) == 18
    time.sleep(6)
    with program("group = Group(NAME + '2'); say('joined'); told()", three[0], name, folder) as last:
        assert last.line() == "joined"
        eventually(lambda: len(os.listdir(folder)), 2)
        last.tell()
        assert last.wait() == 0
    eventually(lambda: os.listdir(folder), [])


def test_ss_shows_them(three: list[Container], folder: Path, name: str) -> None:
    shows = """
        from fastsock.tools import groups
        say(groups.query()[NAME]["members"])
        """
    with program("group = Group(NAME); say('joined'); told()", three[0], name, folder) as member:
        assert member.line() == "joined"
        with program(shows, three[1], name, folder) as other:
            assert other.line() == "1"


# ---- channels ----------------------------------------------------------------------------------------------------

SERVES = """
        listener = socket.create_server((sys.argv[2], 7100))
        say("listens")
        with Channel(listener.accept()[0]) as channel:
            for message in channel: channel.send(message)
        say(channel.shared)
        """
CALLS = """
        with Channel(socket.create_connection((NAME, 7100), SECONDS)) as channel:
            for i in range(200):
                channel.send(b"%d " % i * i)
                assert bytes(channel.receive()) == b"%d " % i * i
        say(channel.shared)
        """


@pytest.mark.parametrize("far", [True, False])
def test_channels(three: list[Container], folder: Path, far: bool) -> None:
    """Through shared memory with the folder, else by frames."""
    with program(SERVES, three[0], "", folder if far else None) as server:
        assert server.line() == "listens"
        with program(CALLS, three[1], three[0].address, folder if far else None) as client:
            assert client.line() == str(far)
        assert server.line() == str(far)
    assert os.listdir(folder) == []


def test_a_channel_of_one_end_with_the_folder(three: list[Container], folder: Path) -> None:
    with program(SERVES, three[0], "", folder) as server:
        assert server.line() == "listens"
        with program(CALLS, three[1], three[0].address, None) as client:
            assert client.line() == "False"
    assert os.listdir(folder) == []


def test_channels_on_a_unix_socket_in_a_folder_that_both_see(three: list[Container], folder: Path) -> None:
    made = f"""
        def unix(call):
            made = socket.socket(socket.AF_UNIX)
            getattr(made, call)({str(folder / "server")!r})
            if call == "bind": made.listen()
            return made
        """
    serves = made + SERVES.replace("socket.create_server((sys.argv[2], 7100))", "unix('bind')")
    calls = made + CALLS.replace("socket.create_connection((NAME, 7100), SECONDS)", "unix('connect')")
    with program(serves, three[0], "", folder) as server:
        assert server.line() == "listens"
        with program(calls, three[1], "", folder) as client:
            assert client.line() == "True"


# ---- strangers ---------------------------------------------------------------------------------------------------


def test_who_keeps_the_turn_costs_others_some_milliseconds(three: list[Container], folder: Path, name: str) -> None:
    number = os.open(folder, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    try:
        with program("group = Group(NAME); say('joined'); told()", three[0], name, folder) as member:
            assert member.line() == "joined"
            with program("group = Group(NAME); say(group.info()['members'])", three[1], name, folder) as other:
                assert other.line() == "2"
    finally:
        os.close(number)
