"""A loop gets a connection that has moved as a pipe, or as the standard streams of a program that it starts.

uvloop reads and writes both in C, and the program knows nothing of the ring on either loop.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop
from pairs import Pair, Task, deadline, make_pair, payload, read_to_eof

import fastsock

SENT, UNREAD, LATER = payload(1_000, 1), payload(300_000, 2), payload(100_000, 3)
RUN = {"asyncio": asyncio.run, "uvloop": uvloop.run}


@pytest.fixture
def run(loop_kind: str) -> Callable[..., Any]:
    return RUN[loop_kind]


@pytest.fixture(params=["kernel", "ring"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """SENT is on its way to far and UNREAD to near."""
    with deadline(50):
        if request.param == "ring":
            fastsock.patch(move_after=0)
        try:
            with make_pair(request.param) as pair:
                pair.near.sendall(SENT)
                pair.far.sendall(UNREAD)
                yield pair
        finally:
            fastsock.unpatch()


def end_stream(far: socket.socket) -> bytes:
    """Sends LATER and the end, and returns all that comes."""
    received = Task(read_to_eof, far)
    far.sendall(LATER)
    far.shutdown(socket.SHUT_WR)
    return received.result()


@pytest.mark.parametrize("how", ["socket", "number", "inherited"])
@pytest.mark.parametrize("shell", [False, True], ids=["exec", "shell"])
def test_standard_streams_of_a_program(pair: Pair, run: Callable[..., Any], how: str, shell: bool) -> None:
    near, far = pair
    number = near.fileno()
    near.set_inheritable(True)

    async def start() -> None:
        entry, exit_ = (number, number) if how == "inherited" else (0, 1)
        copy = f"import os\nwhile data := os.read({entry}, 65536):\n while data: data = data[os.write({exit_}, data):]"
        command = [sys.executable, "-I", "-S", "-c", copy]
        given: dict[str, Any] = {"stdin": near, "stdout": near}
        if how == "number":
            given = {"stdin": number, "stdout": number}
        elif how == "inherited":
            given = {"close_fds": False}
        if shell:
            program = await asyncio.create_subprocess_shell(f"exec {command[0]} -I -S -c '{copy}'", **given)
        else:
            program = await asyncio.create_subprocess_exec(*command, **given)
        near.close()
        received = await asyncio.to_thread(end_stream, far)
        assert await program.wait() == 0
        assert received == SENT + UNREAD + LATER

    run(start())


def test_read_as_a_pipe(pair: Pair, run: Callable[..., Any]) -> None:
    near, far = pair

    async def read() -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), near)
        ending = loop.run_in_executor(None, end_stream, far)
        assert await reader.read() == UNREAD + LATER
        transport.close()
        assert await ending == SENT

    run(read())


def test_written_as_a_pipe(pair: Pair, run: Callable[..., Any]) -> None:
    near, far = pair
    assert near.recv(len(UNREAD), socket.MSG_WAITALL) == UNREAD

    async def write() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, near)
        reading = loop.run_in_executor(None, read_to_eof, far)
        for _ in range(50):
            transport.write(b"pipe")
            await asyncio.sleep(0)
        transport.close()
        assert await reading == SENT + b"pipe" * 50

    run(write())
