"""A peer that has ended its stream and does not read: whether it lives is asked of the kernel (`fs_peer_socket`)."""

import os
import signal
import time

import pytest
from pairs import SECONDS, Task, payload
from processes import running

import fastsock

pytestmark = pytest.mark.usefixtures("bounded")

ON_A_LOOP = """
import asyncio
async def main():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    while await reader.readexactly(1) == b"?":
        writer.write(b"r" if fastsock.path_of(writer).path == "ring" else b"t")
    writer.transport.pause_reading()
    writer.write_eof()
    await asyncio.sleep(1000)
fastsock.run(main())
"""
"""Its loop takes the byte out of the kernel's queue that would make the kernel reset the connection at its death."""


def test_a_blocked_sender_hears_of_its_death_and_waits_while_it_lives() -> None:
    with fastsock.configure(move_after=0), fastsock.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        listener.settimeout(SECONDS)
        with running(ON_A_LOOP, listener.getsockname()[1]) as peer, listener.accept()[0] as near:
            near.settimeout(None)
            both = b"t"
            while both != b"r" or fastsock.path_of(near).path != "ring":
                near.sendall(b"?")
                both = near.recv(1)
                assert both
            near.sendall(b"!")
            assert near.recv(1) == b""
            sending = Task(near.sendall, payload(1 << 20) * 64).until_asleep()
            os.kill(peer.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, peer.pid, os.WSTOPPED)
            time.sleep(1.5)  # it is asked for twice a second
            assert sending.is_alive()
            os.kill(peer.pid, signal.SIGCONT)
            peer.kill()
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                sending.result()
