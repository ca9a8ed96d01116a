"""What a move costs in system calls of both ends, as strace counts them.

Skipped without strace, or where it may not trace."""

import re

import pytest
from harness.counting import traced

MEETING = "socket,bind,listen,connect,accept4,prlimit64,fcntl,epoll_ctl,sendmsg,recvmsg,shutdown"
ASKING = "getsockopt,setsockopt,getsockname,getpeername,ioctl,newfstatat,fstat"
ALLOWED = {
    MEETING: 45,  # 28 to 33; 8 more where the visitor was there before its hello
    ASKING: 45,  # 20 to 29, by what was unread as an end attached
}
OF_THE_PROGRAM = re.compile(r'\d+ +sendmsg\(\d+, {msg_name=NULL, msg_namelen=0, msg_iov=\[{iov_base="[nxy]+"')
"""What it sends by the kernel while both move: as much as there is time for."""
PROGRAM = """
import os, subprocess, sys
import fastsock

MESSAGE = b"x" * 10

def both_moved(connection):
    return fastsock.path_of(connection).reason == "both directions"

def serve(listener):
    while True:
        connection = listener.accept()[0]
        while data := connection.recv(100):
            connection.sendall(b"y" if both_moved(connection) else b"n")
        connection.close()

def ask(connection):
    connection.sendall(MESSAGE)
    return connection.recv(100)

if sys.argv[1:]:
    listener = fastsock.socket(fileno=int(sys.argv[1]))
    serve(listener)
listener = fastsock.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
server = subprocess.Popen([sys.executable, __file__, str(listener.fileno())], pass_fds=[listener.fileno()])
address = listener.getsockname()
try:
    for number in range(3):
        near = fastsock.socket()
        near.connect(address)
        os.write(2, b"BEGIN")
        while ask(near) != b"y" or not both_moved(near):
            pass
        os.write(2, b"END")
        near.close()
finally:
    server.kill()
    server.wait()
"""


@pytest.fixture(scope="module")
def moves(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The system calls of both processes, for each of three connections, while it moves."""
    names = f"write,{MEETING},{ASKING}"
    _, parts = traced(PROGRAM, names, tmp_path_factory.mktemp("moves"), FASTSOCK_MOVE_AFTER="0")
    return [[call for call in part if "resumed>" not in call] for part in parts]


def counted(calls: list[str], names: str) -> int:
    pattern = re.compile(rf"\d+ +({names.replace(',', '|')})\(")
    return sum(1 for call in calls if pattern.match(call) and not OF_THE_PROGRAM.match(call))


@pytest.mark.parametrize("names", [MEETING, ASKING], ids=["meeting", "asking"])
def test_a_later_move_between_two_processes_has_a_bounded_price(moves: list[list[str]], names: str) -> None:
    assert len(moves) == 3
    for calls in moves[1:]:
        assert 0 < counted(calls, names) <= ALLOWED[names], "\n".join(calls)
