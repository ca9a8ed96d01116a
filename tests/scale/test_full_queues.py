"""The queue of a connection thread is full: requests find no room, and what they were for happens all the same.

A stranger may fill it, with anything; and so may peers, while the process is stopped or starved. And a loop is told by
that thread although a fork has stopped it.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
from collections.abc import Iterator

import pytest
from conformance.aio.kit import LOOPS
from harness.pairs import KernelSocket
from harness.processes import Program, running
from harness.untrusted_users import asked_at, stopped

OTHERS = {
    "anything": b"no request",
    "offers": struct.pack("=QII16sII", int.from_bytes(b"fs-set01", "little"), 3, 0, bytes(16), 1, 0),
}


pytestmark = pytest.mark.usefixtures("bounded")


@contextlib.contextmanager
def full(program: Program, said: str) -> Iterator[None]:
    """Stands still meanwhile, and its queue is full of this."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, stopped(program):
        other.setblocking(False)
        other.connect(asked_at(program))
        with contextlib.suppress(BlockingIOError):
            while True:
                other.send(OTHERS[said])
        yield


SERVES = """
    import asyncio
    async def serve():
        got = asyncio.get_running_loop().create_future()
        async def echo(reader, writer):
            while (data := await reader.read(100)) == b"move":
                writer.write(data)
            got.set_result(data)
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        say(server.sockets[0].getsockname()[1])
        return server, got
"""
"""`serve` echoes until something else comes, which it gives (with the server, that it goes on listening)."""

ASLEEP_OF_ONE = f"""{SERVES}
    async def main():
        server, got = await serve()
        say((await got).decode())
    fastsock.patch(move_after=0)
    with fastsock.configure(poll_us=0):
        fastsock.new_event_loop(sys.argv[1]).run_until_complete(main())
"""

WITHOUT_PAGES = """
    SET_ASLEEP = 2
    sock = fastsock.socket()
    sock.settimeout(SECONDS)
    sock.connect(("127.0.0.1", int(sys.argv[1])))
    def move():
        sock.sendall(b"move")
        return sock.recv(4, socket.MSG_WAITALL) == b"move" and inside(sock)["attached"] and inside(sock)["switched_at"]
    until(move, "the move")
    until(lambda: inside(sock)["peer_doorbell"] & SET_ASLEEP, "the loop is armed")
    time.sleep(0.3)  # (it is about to sleep then; should it not yet, nothing is asked, and nothing is tried here)
    for name in os.listdir("/proc/self/fd"):  # it has the page, and cannot wake anybody by it
        if os.path.exists(f"/proc/self/fd/{name}") and os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventfd]":
            os.dup2(0, int(name))
    say("ready")
    told()
    sock.sendall(b"told")
    say("sent")
    told()
"""


FORKS = f"""{SERVES}
    import types
    import fastsock.path_events
    # As from Python 3.12 on: the interpreter warns of threads that it finds when the fork is over.
    fastsock.path_events.sys = types.SimpleNamespace(version_info=(3, 12))
    async def main():
        server, got = await serve()
        await asyncio.get_running_loop().run_in_executor(None, told)
        def fork():
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
        if sys.argv[2] == "the loop":
            fork()
        else:
            await asyncio.get_running_loop().run_in_executor(None, fork)
        say("forked")
        say((await got).decode())
    with fastsock.configure(poll_us=0, move_after=0):
        fastsock.new_event_loop(sys.argv[1]).run_until_complete(main())
"""


INHERITED = """
    import asyncio
    async def main(sock):
        got = asyncio.get_running_loop().create_future()
        class Echo(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport
            def data_received(self, data):
                self.transport.write(data) if data == b"move" else got.set_result(data)
        await asyncio.get_running_loop().connect_accepted_socket(Echo, sock)
        say((await got).decode())
    with fastsock.configure(poll_us=0, move_after=0), listening() as listener:
        say(listener.getsockname()[1])
        sock, _ = listener.accept()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300_000))  # no set is asleep yet
        while True:
            try:
                sock.sendall(sock.recv(100))
            except BlockingIOError:
                if fastsock.path_of(sock).path == "ring":
                    break
        sock.setblocking(False)
        pid = os.fork()
        if not pid:
            try:
                sock.recv(1)
            except BlockingIOError:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        fastsock.new_event_loop(sys.argv[1]).run_until_complete(main(sock))
"""


@contextlib.contextmanager
def forks(server: Program) -> Iterator[None]:
    server.tell()
    assert server.line() == "forked"
    yield


def nothing(server: Program) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


MEANWHILE = {
    **{f"full of {said}": (ASLEEP_OF_ONE, "", functools.partial(full, said=said)) for said in OTHERS},
    **{f"fork in {thread}": (FORKS, thread, forks) for thread in ("the loop", "another thread")},
    "inherited": (INHERITED, "", nothing),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("loop_kind", LOOPS)
def test_a_loop_that_sleeps_is_told(loop_kind: str, meanwhile: str) -> None:
    """Who has no page asks its connection thread. That finds no room for it, whatever the queue is full of; or a fork
    has stopped that thread, and no call on a connection starts it again; or a child that was killed had answered in
    its place, and its socket for requests is gone."""
    source, argument, happens = MEANWHILE[meanwhile]
    with running(source, loop_kind, argument) as server, running(WITHOUT_PAGES, server.line()) as client:
        assert client.line() == "ready"
        with happens(server):
            client.tell()
            assert client.line() == "sent"
        assert server.line() == "told"
