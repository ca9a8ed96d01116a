"""Memberships that are closed, dropped and interrupted at any moment, by programs that use them as the docs say."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from harness.pairs import SECONDS, until

from fastsock import AsyncGroup, Group, new_event_loop

from .test_groups import child


def use(group: Group, what: int, begun: threading.Barrier, wrong: list[BaseException]) -> None:
    """Until it is closed."""
    begun.wait()
    while True:
        try:
            if what == 0:
                group.send(bytes(1 << 20), 0.001)
            elif what == 1:
                group.send(bytes(100), 0.001)
            elif what == 2:
                group.take(0.001)
            else:
                with group.lend(1 << 18, 0.001):
                    pass
        except TimeoutError:
            pass
        except ValueError as error:
            if "closed" not in str(error):
                wrong.append(error)
            return
        except BaseException as error:
            wrong.append(error)
            return


@pytest.mark.parametrize("slow", ["drop", "block"])
def test_close_while_threads_are_in_calls(name: str, slow: str, tmp_path: Path) -> None:
    """The numbers of its descriptors become others' at once: nobody looks at those."""
    content = os.urandom(1 << 20)
    wrong: list[BaseException] = []
    for round in range(40):
        group = Group(name, slow=slow, kept=4, size=0, max_message=1 << 20)
        begun = threading.Barrier(5)
        threads = [threading.Thread(target=use, args=(group, what, begun, wrong)) for what in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        time.sleep(0.0005 * (round % 8))
        group.close()
        files = []
        for i in range(12):
            file = (tmp_path / f"{i}").open("w+b")
            file.write(content)
            file.flush()
            files.append(file)
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        for file in files:
            file.seek(0)
            assert file.read() == content
            file.close()
        assert wrong == []


def test_a_signal_ends_the_wait_for_a_member_that_does_not_answer(name: str) -> None:
    class Came(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise Came

    ready, tell = os.pipe()

    def join() -> None:
        group = Group(name)
        os.write(tell, b"x")
        time.sleep(SECONDS)
        group.close()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with child(join, status=None) as member:
            os.read(ready, 1)
            os.kill(member, signal.SIGSTOP)
            os.waitpid(member, os.WUNTRACED)
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Came):
                Group(name)
            assert time.monotonic() - began < 5
    finally:
        signal.signal(signal.SIGALRM, before)


def test_one_loop_after_the_other(name: str) -> None:
    """As in two calls of asyncio.run."""
    group = AsyncGroup(name)
    for kind in ("asyncio", "uvloop", "asyncio"):
        loop = new_event_loop(kind)

        async def body() -> bytes:
            receiving = asyncio.create_task(group.receive())
            await asyncio.sleep(0.01)
            await group.send(b"x")
            return bytes(await asyncio.wait_for(receiving, SECONDS))

        assert loop.run_until_complete(body()) == b"x"
        waits = loop.create_task(group.receive())
        with pytest.raises(asyncio.TimeoutError):
            loop.run_until_complete(asyncio.wait_for(waits, 0.01))
        loop.close()
    group.close()


def test_what_is_dropped_without_close_leaves_nothing(name: str) -> None:
    with Group(name) as other:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            group = Group(name)
            group.fileno()
            other.send(bytes(5000))
            message = group.receive(SECONDS)
            view = memoryview(message)
            lent = group.lend(5000)
            del group, message, lent
            gc.collect()
            assert bytes(view) == bytes(5000)
            assert other.info()["members"] == 2
            del view
            gc.collect()
            assert other.info()["members"] == 1
        until(lambda: len(os.listdir("/proc/self/fd")) <= before, "their descriptors are closed")


def test_a_block_that_closes_the_group(name: str) -> None:
    with Group(name) as other:
        group = Group(name)
        with group.lend(5000) as lent:
            memoryview(lent)[:5] = b"first"
            group.close()
        assert bytes(other.receive(SECONDS))[:5] == b"first"
        assert other.info()["members"] == 1
        with pytest.raises(ValueError, match="closed"):
            group.lend(1)


def test_an_array_of_a_message(name: str) -> None:
    numpy = pytest.importorskip("numpy")
    with Group(name) as group:
        for length in (16, 800, 80_000):
            with group.lend(length) as lent:
                numpy.frombuffer(lent)[:] = numpy.arange(length // 8)
            with group.receive(SECONDS) as message:
                array = numpy.frombuffer(message)
                assert not array.flags.writeable
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.flags.writeable = True
                part = array[1:]  # its last view
            del array
            for _ in range(3000):
                group.send(bytes(length), 0)
            assert part[-1] == length // 8 - 1
            del part, message
            while group.take() is not None:
                pass
