"""Groups: one order for all, members that come, go, sleep, stop and die, and what each of them has."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.hostile_peer import NOBODY, as_nobody
from harness.pairs import SECONDS, KernelSocket, until

import fastsock
from fastsock import Group
from fastsock.tools import groups, ss

from . import kills


@contextlib.contextmanager
def child(body: Callable[[], Any], status: int | None = 0) -> Iterator[int]:
    """A forked process that runs `body`; it ends with this status, or is killed at the end (None)."""
    process = os.fork()
    if not process:
        with contextlib.suppress(BaseException):
            signal.alarm(2 * SECONDS)
            body()
            os._exit(0)
        os._exit(1)
    try:
        yield process
    finally:
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert ended == (-signal.SIGKILL if status is None else status)


def test_all_members_get_all_messages_in_one_order(name: str) -> None:
    with Group(name) as a, Group(name) as b, Group(name, reads=False) as c:
        for i in range(100):
            (a, b, c)[i % 3].send(b"%d" % i)
        for group in (a, b):
            got = [group.receive(SECONDS) for _ in range(100)]
            assert [bytes(message) for message in got] == [b"%d" % i for i in range(100)]
            assert [message.sequence for message in got] == list(range(100))
            assert [message.own for message in got[:3]] == [group is a, group is b, False]
            assert group.take() is None


@pytest.mark.parametrize("length", [0, 1, 256, 1024, 1025, 4096, 100_000, 5_000_000])
def test_messages_are_lent_and_copied(name: str, length: int) -> None:
    data = os.urandom(length)
    with Group(name) as group:
        group.send(data)
        with group.lend(length) as lent:
            memoryview(lent)[:] = data
        for _ in range(2):
            with group.receive(SECONDS) as message:
                view = memoryview(message)
                assert (len(message), view.readonly, view == data) == (length, True, True)
                assert ("lent" in repr(message)) == (length > 1024)
                view.release()


def test_a_late_member_begins_at_the_head(name: str) -> None:
    with Group(name) as first:
        first.send(b"before")
        with Group(name) as late:
            first.send(b"after")
            assert bytes(late.receive(SECONDS)) == b"after"
            assert late.lost == 0


def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(name: str) -> None:
    with Group(name, kept=8) as group:
        for i in range(20):
            group.send(b"%d" % i)
        message = group.receive(SECONDS)
        assert message.lost == 20 - (19 - message.sequence) - 1 == group.lost > 0
        assert bytes(message) == b"%d" % message.sequence
        rest = [group.take() for _ in range(19 - message.sequence)]
        assert [bytes(each) for each in rest if each] == [b"%d" % i for i in range(message.sequence + 1, 20)]


def test_a_slow_reader_holds_the_writers_of_a_group_that_blocks(name: str) -> None:
    with Group(name, slow="block", kept=8) as reader, Group(name, slow="block", reads=False) as writer:
        for i in range(8):
            writer.send(b"%d" % i, 0)
        with pytest.raises(TimeoutError):
            writer.send(b"8", 0.05)
        assert bytes(reader.receive(SECONDS)) == b"0"
        writer.send(b"8", 0)
        sender = threading.Thread(target=writer.send, args=(b"9",))
        sender.start()
        assert [bytes(reader.receive(SECONDS)) for _ in range(9)] == [b"%d" % i for i in range(1, 10)]
        sender.join()
        assert reader.lost == 0


def test_a_reader_that_dies_holds_nobody(name: str) -> None:
    with Group(name, slow="block", kept=8, reads=False) as writer:
        ready, tell = os.pipe()

        def read() -> None:
            writer.close()
            group = Group(name, slow="block")
            os.write(tell, b"x")
            time.sleep(SECONDS)
            group.close()

        with child(read, status=None) as reader:
            os.read(ready, 1)
            for _ in range(8):
                writer.send(b"x")
            with pytest.raises(TimeoutError):
                writer.send(b"x", 0.05)
            os.kill(reader, signal.SIGKILL)
            writer.send(b"x", SECONDS)


def test_a_stopped_reader_costs_nobody_anything(name: str) -> None:
    with Group(name, kept=8) as group:
        ready, tell = os.pipe()

        def read() -> None:
            group.close()
            own = Group(name)
            os.write(tell, b"x")
            kept = [own.receive(), own.receive()]
            os.write(tell, b"x")
            time.sleep(SECONDS)
            del kept

        with child(read, status=None) as reader:
            os.read(ready, 1)
            group.send(bytes(5000))
            group.send(bytes(5000))
            os.read(ready, 1)
            os.kill(reader, signal.SIGSTOP)
            for i in range(1000):
                group.send(bytes([i % 256]) * 5000, 0)
            for message in iter(group.take, None):
                assert bytes(message) == bytes([(message.sequence - 2) % 256]) * 5000


def test_a_held_message_keeps_its_bytes(name: str) -> None:
    with Group(name, kept=8) as group:
        group.send(b"a" * 5000)
        held = group.receive(SECONDS)
        for _ in range(100):
            group.send(b"b" * 5000)
        assert bytes(held) == b"a" * 5000
        held.release()
        with pytest.raises(ValueError, match="released"):
            memoryview(held)


def test_a_view_outlives_the_with_statement_and_the_membership(name: str) -> None:
    with Group(name) as other:
        group = Group(name)
        other.send(b"a" * 5000)
        with group.receive(SECONDS) as message:
            view = memoryview(message)
            with pytest.raises(BufferError, match="views"):
                message.release()
        group.close()
        for _ in range(5000):
            other.send(b"b" * 5000)
        assert view == b"a" * 5000
        assert other.info()["members"] == 2
        view.release()
        assert other.info()["members"] == 1
        with pytest.raises(ValueError, match="closed"):
            group.receive(0)


def test_who_holds_many_gets_copies(name: str) -> None:
    """Half of the blocks are for writers, whatever readers keep."""
    with Group(name, kept=8, size=8 * 4096) as group:
        kept = []
        for i in range(100):
            group.send(bytes([i]) * 3000, 0)
            kept.append(group.receive(SECONDS))
        assert [bytes(each) for each in kept] == [bytes([i]) * 3000 for i in range(100)]
        assert sum("lent" in repr(each) for each in kept) == 4


def test_a_lent_buffer_is_given_back_if_its_block_raises(name: str) -> None:
    with Group(name) as group:
        with pytest.raises(KeyError), group.lend(100):
            raise KeyError
        lent = group.lend(100)
        lent.shorten(3)
        with lent:
            memoryview(lent)[:3] = b"abc"
        assert bytes(group.receive(SECONDS)) == b"abc"
        assert group.take() is None
        with pytest.raises(ValueError, match="sent, or given back"):
            memoryview(lent)
        with pytest.raises(ValueError, match="max_message"):
            group.lend(1 << 30)


def test_copies_if_asked(name: str) -> None:
    with Group(name, copy=True) as group:
        group.send(bytes(100_000))
        assert "copied" in repr(group.receive(SECONDS))


def test_select_sees_each_message(name: str) -> None:
    with Group(name) as group, Group(name) as other:
        poll = select.poll()
        poll.register(group, select.POLLIN)
        assert group.take() is None
        for _ in range(50):
            assert poll.poll(0) == []
            other.send(b"1")
            other.send(b"2")
            for _ in range(2):
                assert poll.poll(SECONDS * 1000) != []
                assert group.take() is not None
        assert poll.poll(0) == []


def test_a_datagram_of_a_stranger_wakes_nobody(name: str) -> None:
    with Group(name) as group, KernelSocket(1, 2) as stranger:
        number = group.fileno()
        assert group.take() is None
        address = KernelSocket(fileno=os.dup(number))
        for data in (b"", b"12345678", b"x" * 100):
            stranger.sendto(data, address.getsockname())
        address.close()
        assert select.select([group], [], [], 0.05)[0] == []


def test_sleepers_are_woken(name: str) -> None:
    with Group(name) as group, Group(name) as other:
        answers: list[bytes] = []

        def read() -> None:
            answers.extend(bytes(message) for message in itertools.islice(other, 200))

        thread = threading.Thread(target=read)
        thread.start()
        for i in range(200):
            time.sleep(0.0005 * (i % 3))
            group.send(b"%d" % i)
        thread.join(SECONDS)
        assert answers == [b"%d" % i for i in range(200)]


def test_threads_of_one_member_share_the_messages(name: str) -> None:
    with Group(name, slow="block") as group, Group(name, slow="block", reads=False) as writer:
        got: list[int] = []

        def read() -> None:
            while (message := bytes(group.receive(SECONDS))) != b"end":
                got.append(int(message))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(2000):
            writer.send(b"%d" % i)
        for _ in threads:
            writer.send(b"end")
        for thread in threads:
            thread.join(SECONDS)
        assert sorted(got) == list(range(2000))


def test_a_fork_shares_the_membership(name: str) -> None:
    """As it shares a socket: a message goes to one of them, and the membership ends with the last."""
    with Group(name) as other:
        group = Group(name)

        def receive() -> None:
            assert bytes(group.receive(SECONDS)) == b"for the child"
            group.send(b"from the child")
            assert bytes(group.receive(SECONDS)) == b"from the child"

        with child(receive):
            other.send(b"for the child")
            assert bytes(other.receive(SECONDS)) == b"for the child"
            assert bytes(other.receive(SECONDS)) == b"from the child"
        assert group.take() is None

        def outlive() -> None:
            other.close()
            assert bytes(group.receive(SECONDS)) == b"still there"

        with child(outlive):
            group.close()
            other.send(b"still there")
            assert other.info()["members"] == 2


def test_what_is_held_stays_the_parents(name: str) -> None:
    with Group(name, kept=8) as group:
        group.send(b"a" * 5000)
        held = group.receive(SECONDS)
        with child(held.release):
            pass
        for _ in range(100):
            group.send(b"b" * 5000)
        assert bytes(held) == b"a" * 5000


def test_the_group_ends_with_its_last_member(name: str) -> None:
    first = Group(name)
    second = Group(name)
    first.send(b"old")
    first.close()
    assert second.info()["messages"] == 1
    third = Group(name)
    assert third.info()["messages"] == 1
    third.close()
    second.close()
    with Group(name) as group:
        assert group.info()["messages"] == 0


def test_who_made_the_group_may_die(name: str) -> None:
    ready, tell = os.pipe()

    def make() -> None:
        group = Group(name)
        os.write(tell, b"x")
        group.receive(SECONDS)
        time.sleep(SECONDS)

    with child(make, status=None) as maker:
        os.read(ready, 1)
        with Group(name) as second:
            second.send(b"1")
            os.kill(maker, signal.SIGKILL)
            with Group(name) as third:
                second.send(b"2")
                assert bytes(third.receive(SECONDS)) == b"2"


def test_a_member_that_does_not_answer_for_seconds_is_waited_for(name: str) -> None:
    """On a busy machine. (Who comes must not fill its queue with its own questions.)"""
    ready, tell = os.pipe()

    def join() -> None:
        group = Group(name)
        os.write(tell, b"x")
        assert group.receive(SECONDS)

    with child(join) as member:
        os.read(ready, 1)
        os.kill(member, signal.SIGSTOP)
        os.waitpid(member, os.WUNTRACED)
        timer = threading.Timer(4, os.kill, (member, signal.SIGCONT))
        timer.start()
        with Group(name) as group:
            assert group.info()["members"] == 2
            group.send(b"x")
        timer.join()


def test_many_who_come_at_once_make_one_group(name: str) -> None:
    for round in range(5):
        go, start = os.pipe()
        told, tell = os.pipe()

        def join(name: str = f"{name} {round}", go: int = go, tell: int = tell) -> None:
            os.read(go, 1)
            with Group(name, slow="block") as group:
                until(lambda: group.info()["members"] == 8, "all are in one group")
                os.write(tell, b"x")
                os.read(go, 1)

        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(child(join))
            os.write(start, b"x" * 8)
            for _ in range(8):
                assert os.read(told, 1) == b"x"
            os.write(start, b"x" * 8)


def test_both_kinds_of_group_are_told_apart(name: str) -> None:
    with Group(name):
        with pytest.raises(ValueError, match="other kind"):
            Group(name, slow="block")
        with pytest.raises(ValueError, match="drop"):
            Group(name, slow="wait")
        with pytest.raises(ValueError, match="1 to 200"):
            Group("x" * 201)


def test_a_full_group_says_so(name: str) -> None:
    groups = [Group(name, size=1 << 16, max_message=4096, kept=8) for _ in range(64)]
    with pytest.raises(OSError, match="as many members"):
        Group(name)
    groups[0].send(b"to all")
    assert {bytes(group.receive(SECONDS)) for group in groups} == {b"to all"}
    groups[7].close()
    groups[7] = Group(name)
    for group in groups:
        group.close()


def test_memory_is_bounded(name: str) -> None:
    """By messages of all sizes in turns, each of which has blocks of its own."""
    with Group(name, size=1 << 22, max_message=1 << 20) as group:
        for _ in range(3):
            for length in (4096, 1 << 14, 1 << 16, 1 << 18, 1 << 20):
                for _ in range(200):
                    group.send(bytes(length))
        limit = group.info()["limit"]
        assert limit == 1 << 23
        links = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]  # not the one of this look
        (arena,) = [fd for fd in links if "fastsock-group-arena" in str(fd.readlink())]
        assert os.stat(arena).st_blocks * 512 <= limit + (2 << 20)  # blocks of less than a page are not counted


def test_what_is_left_at_the_end(name: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with Group(name) as a, Group(name) as b:
            a.send(bytes(5000))
            b.receive(SECONDS)
            a.fileno()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the thread's
    assert name not in Path("/proc/net/unix").read_text()


def test_fastsock_ss_shows_groups(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Group(name) as a, Group(name):
        a.send(b"x")
        assert groups.query()[name].items() >= {"members": 2, "messages": 1, "sent": 1, "slow": "drop"}.items()
        assert ss.show(None, as_json=False) == 0
        shown = capsys.readouterr().out
        (line,) = [line for line in shown.splitlines() if line.startswith(name)]
        assert line.split()[-6:-1] == ["drop", "2", "1", "1", "0"]
        assert "none of your processes" not in shown
    assert name not in groups.query()


# ---- who may come ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_needs_trust(name: str) -> None:
    told, tell = os.pipe()

    def come(trust: str) -> None:
        try:
            with fastsock.configure(trust=trust), Group(name, owner=0) as group:
                os.write(tell, bytes(group.receive(SECONDS)))
        except OSError as error:
            os.write(tell, type(error).__name__.encode())

    with Group(name) as group:
        stranger = as_nobody(lambda: come("any"))  # which trusts us, and we do not trust it
        assert os.read(told, 100) == b"TimeoutError"
        os.waitpid(stranger, 0)
        assert group.info()["members"] == 1
    with fastsock.configure(trust=f"user,{NOBODY}"), Group(name) as group:
        stranger = as_nobody(lambda: come("any"))
        until(lambda: group.info()["members"] == 2, "the trusted user has joined")
        group.send(b"hello")
        assert os.read(told, 100) == b"hello"
        os.waitpid(stranger, 0)


# ---- the dead ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["drop", "block"])
@pytest.mark.parametrize("what", ["receive", "lend"])
def test_what_a_killed_child_had_is_given_back(name: str, slow: str, what: str) -> None:
    """A forked child dies, and the membership lives on: more often than there are blocks."""
    with Group(name, slow=slow, kept=8, size=0, max_message=5000) as group:
        ready, tell = os.pipe()

        def hold() -> None:
            held = group.receive(SECONDS) if what == "receive" else group.lend(5000)
            os.write(tell, b"%d" % len(held))
            time.sleep(SECONDS)

        for _ in range(20):
            group.send(b"x" * 5000, SECONDS)
            with child(hold, status=None):
                assert os.read(ready, 10) == b"5000"
            group.take()
        group.send(b"x" * 5000, SECONDS)
        assert bytes(group.receive(SECONDS)) == b"x" * 5000
        assert group.info()["members"] == 1


@pytest.mark.parametrize("slow", ["drop", "block"])
def test_members_are_killed_at_any_moment(slow: str) -> None:
    """10,000 of them: `python -m tests.messages.kills`."""
    assert kills.run(150, slow, seed=1) > 100


def test_a_signal_that_comes_before_a_wait_sleeps_ends_it(name: str) -> None:
    """Also while it spins."""

    class Came(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise Came

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with Group(name) as group:
            for number in range(200):
                with pytest.raises(Came):  # noqa: PT012
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number))
                    group.receive(SECONDS)
    finally:
        signal.signal(signal.SIGALRM, before)
