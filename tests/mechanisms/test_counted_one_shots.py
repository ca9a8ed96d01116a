"""What a connection that ends before its search begins costs below the library, against the same without it, as strace
counts. Skipped without strace, or where it may not trace."""

from collections import Counter
from pathlib import Path

from harness.counting import traced

ROUNDS = 20
ONE_SHOTS = """
import os, select, socket, sys
if os.environ.get("BELOW") and "LD_PRELOAD" not in os.environ:
    os.execv(sys.executable, [sys.executable, "-m", "fastsock", "run", "--libc", __file__])

listener = socket.create_server(("127.0.0.1", 0))
address = listener.getsockname()
epoll = select.epoll()

def one_shot():
    near = socket.socket()
    near.setblocking(False)
    near.connect_ex(address)
    epoll.register(near, select.EPOLLOUT)
    epoll.poll()
    far = listener.accept()[0]
    far.setblocking(False)
    epoll.register(far, select.EPOLLIN)
    assert near.send(b"question") and epoll.poll() and far.recv(100) and far.send(b"answer")
    epoll.modify(near, select.EPOLLIN)
    assert epoll.poll() and near.recv(100) == b"answer"
    far.close()
    near.close()

one_shot()
os.write(2, b"BEGIN")
for _ in range(ROUNDS):
    one_shot()
os.write(2, b"END")
""".replace("ROUNDS", str(ROUNDS))


def calls(folder: Path, **variables: str) -> Counter[str]:
    folder.mkdir()
    _, (lines,) = traced(ONE_SHOTS, "%net,%desc,%process,getpid", folder, FASTSOCK_POLL_US="0", **variables)
    same = {"epoll_pwait2": "epoll_wait", "epoll_pwait": "epoll_wait", "read": "recvfrom", "write": "sendto"}
    names = [line.split("(")[0].split()[-1] for line in lines if "(" in line]
    return Counter(same.get(name, name) for name in names)


def test_a_one_shot_costs_no_call_but_the_end_of_its_registration(tmp_path: Path) -> None:
    plain, below = calls(tmp_path / "plain"), calls(tmp_path / "below", BELOW="1")
    assert plain["connect"] == plain["accept4"] == ROUNDS
    extra = below - plain
    assert set(extra) <= {"epoll_ctl"}, extra
    assert extra["epoll_ctl"] <= 2 * ROUNDS  # both ends were registered
