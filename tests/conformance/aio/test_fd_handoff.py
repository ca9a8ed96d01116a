"""A loop gets a connection that has moved as a pipe, or as the standard streams of a program that it starts.

uvloop reads and writes both in C, and the program knows nothing of the ring on either loop.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop
from harness.pairs import Pair, deadline, make_pair, read_exactly, read_to_eof

import fastsock
from conformance.blocking.test_passing_on import STAGES, raw_cat

RUN = {"asyncio": asyncio.run, "uvloop": uvloop.run}
STAGE = STAGES["partly read"]


@pytest.fixture
def run(loop_kind: str) -> Callable[..., Any]:
    return RUN[loop_kind]


@pytest.fixture(params=["kernel", "ring"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with deadline(50):
        if request.param == "ring":
            fastsock.patch(move_after=0)
        try:
            with make_pair(request.param) as pair:
                STAGE.prepare(pair.near, pair.far)
                yield pair
        finally:
            fastsock.unpatch()


@pytest.mark.parametrize("how", ["socket", "number", "inherited"])
@pytest.mark.parametrize("shell", [False, True], ids=["exec", "shell"])
def test_standard_streams_of_a_program(pair: Pair, run: Callable[..., Any], how: str, shell: bool) -> None:
    near, far = pair
    near.set_inheritable(True)
    number = near.fileno()
    given: dict[str, Any] = {
        "socket": {"stdin": near, "stdout": near},
        "number": {"stdin": number, "stdout": number},
        "inherited": {"close_fds": False},
    }[how]
    command = raw_cat(number) if how == "inherited" else ["cat"]

    async def start() -> None:
        if shell:
            program = await asyncio.create_subprocess_shell(f"exec {shlex.join(command)}", **given)
        else:
            program = await asyncio.create_subprocess_exec(*command, **given)
        near.close()
        received = await asyncio.to_thread(STAGE.follow, far)
        assert await program.wait() == 0
        assert received == STAGE.sent + STAGE.expected

    run(start())


def test_read_as_a_pipe(pair: Pair, run: Callable[..., Any]) -> None:
    near, far = pair

    async def read() -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), near)
        ending = loop.run_in_executor(None, STAGE.follow, far)
        assert await reader.read() == STAGE.expected
        transport.close()
        assert await ending == STAGE.sent

    run(read())


def test_written_as_a_pipe(pair: Pair, run: Callable[..., Any]) -> None:
    near, far = pair
    read_exactly(near, STAGE.before - STAGE.read)

    async def write() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, near)
        reading = loop.run_in_executor(None, read_to_eof, far)
        for _ in range(50):
            transport.write(b"pipe")
            await asyncio.sleep(0)
        transport.close()
        assert await reading == STAGE.sent + b"pipe" * 50

    run(write())
