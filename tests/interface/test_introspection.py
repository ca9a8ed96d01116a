"""What a process tells to who looks at it from outside, and to whom."""

import os
import re
import socket
import struct
import time
from pathlib import Path

import attrs
import pytest
from harness.pairs import KernelSocket, make_pair, state_of, until
from harness.processes import running

from fastsock.path_events import REASONS, Reason
from fastsock.tools import introspection

CORE = Path(__file__).parents[2] / "core"

PAIR = """
    listener = listening()
    near = fastsock.socket()
    near.connect(listener.getsockname())
    far, _ = listener.accept()
    follows = threading.Thread(target=settle, args=(far,), kwargs=dict(leads=False), daemon=True)
    follows.start()
    settle(near)
    follows.join()  # it has read what settle() sends last
    near.sendall(b"x" * 1000)
    say(f"{near.getsockname()[1]} {listener.getsockname()[1]}")
    told()
"""

IDLE = """
    with make_pair("ring"):
        pass  # from then on there is a connection thread
    fastsock.patch(move_after=1000)
    listener = listening()
    near = socket.socket()
    near.connect(listener.getsockname())
    far, _ = listener.accept()
    say(near.getsockname()[1])
    told()
"""


pytestmark = pytest.mark.usefixtures("bounded")


def seen(pid: int) -> introspection.Process:
    found = until(lambda: introspection.query({pid}), "the process answers")
    assert len(found) == 1
    return found[0]


def test_a_moved_connection_is_seen_at_both_ends():
    with running(PAIR) as program:
        near, far = program.line().split()
        process = seen(program.pid)
        ends = {connection.local.rpartition(":")[2]: connection for connection in process.connections}
    assert ends.keys() == {near, far}
    assert {end.path for end in ends.values()} == {"ring"}
    assert ends[near].peer_pid == ends[far].peer_pid == program.pid
    assert ends[far].receive_queue == 1000
    assert ends[near].unconsumed >= 1
    assert 0 < ends[near].credits < ends[near].window == 32
    assert ends[near].counters["bytes_sent"] >= 1000
    assert process.total("bytes_sent") == process.total("bytes_received") + 1000
    assert "python" in process.command


def test_one_on_kernel_tcp_says_why():
    with running(IDLE) as program:
        program.line()
        process = seen(program.pid)
    assert [(each.path, each.reason, each.credits) for each in process.connections] == [("tcp", Reason.FEW, None)] * 2
    assert process.total("bytes_sent") == process.gone["bytes_sent"]


def test_more_connections_than_one_answer_and_one_page_of_the_roll_hold(soft_limit_raised):
    source = """
        with make_pair("ring"):
            pass  # from then on there is a connection thread
        fastsock.patch(move_after=100)
        listener = listening(backlog=100)
        kept = []
        for _ in range(600):
            near = socket.socket()
            near.connect(listener.getsockname())
            kept += [near, listener.accept()[0]]
        say("open")
        told()
        for each in kept[::2]:
            each.close()
        say("closed")
        told()
        for _ in range(100):  # in the places of those that are closed
            near = socket.socket()
            near.connect(listener.getsockname())
            kept += [near, listener.accept()[0]]
        say("open again")
        told()
    """
    with running(source) as program:
        program.line()
        assert len(seen(program.pid).connections) == 1200
        program.tell()
        program.line()
        assert until(lambda: len(seen(program.pid).connections) == 600, "half of them are closed")
        program.tell()
        program.line()
        connections = seen(program.pid).connections
        assert len({connection.inode for connection in connections}) == len(connections) == 800


def test_forty_moved_connections_take_more_than_one_answer(soft_limit_raised):
    source = """
        import contextlib
        with contextlib.ExitStack() as kept:
            for _ in range(20):
                kept.enter_context(make_pair("ring"))
            say("all are on the ring")
            told()
    """
    with running(source) as program:
        program.line()
        process = seen(program.pid)
    assert len([each for each in process.connections if each.credits is not None]) == 40


@pytest.fixture
def soft_limit_raised():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_forked_child_answers_for_itself():
    source = PAIR.replace(
        "    told()\n",
        """
    child = os.fork()
    if not child:
        signal.alarm(30)
        far.recv(1)  # its connection thread starts with this
        time.sleep(30)
        os._exit(0)
    near.sendall(b"x")  # without patch(), and from Python 3.12 on, the parent's starts again with this
    say(child)
    told()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    say("over")
""",
    )
    with running(source) as program:
        program.line()
        child = int(program.line())
        both = [seen(child), seen(program.pid)]
        program.tell()
        assert program.line() == "over"
    assert [process.pid for process in both] == [child, program.pid]
    inodes = [{connection.inode for connection in process.connections} for process in both]
    assert inodes[0] == inodes[1]
    assert len(inodes[0]) == 2


def test_a_process_that_has_used_no_connection_is_not_seen():
    with running("import fastsock; fastsock.patch(); say('here'); told()") as program:
        program.line()
        assert introspection.query({program.pid}) == []


def test_a_descriptor_that_is_closed_meanwhile_hides_no_other_one():
    """The list of this process has the descriptor by which the list was read."""
    with make_pair("ring"):
        process = seen(os.getpid())
        assert process.pid == os.getpid()


def test_a_stopped_process_is_left_out_and_costs_the_patience():
    import signal

    with running(IDLE) as program:
        program.line()
        seen(program.pid)
        os.kill(program.pid, signal.SIGSTOP)
        until(lambda: state_of(program.pid) == "T", "the stop")
        began = time.monotonic()
        assert introspection.query({program.pid}, patience=0.3) == []
        assert time.monotonic() - began < 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two other users")
def test_another_user_is_told_nothing():
    source = """
        os.seteuid(65534)
        os.environ["FASTSOCK_TRUST"] = "any"
        fastsock.patch(trust="any", move_after=1000)
        with make_pair("ring"):
            pass  # from then on there is a connection thread
        listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
        near = socket.socket(); near.connect(listener.getsockname())
        say(os.getpid()); told()
    """
    asking = """
        from fastsock.tools import introspection
        introspection.query(patience=0.1)  # imports what it needs, where another user may not read
        os.setgid(65534); os.setuid(65533)
        say(f"{len(introspection.names())} {len(introspection.query(patience=0.5))}")
    """
    with running(source) as program:
        program.line()
        assert until(lambda: introspection.query({program.pid}), "root is answered")  # root is
        with running(asking) as stranger:
            there, answered = stranger.line().split()
        assert int(there) >= 1
        assert answered == "0"


# ---- hostile askers --------------------------------------------------------------------------------------


def ask_name(pid: int) -> bytes:
    (name,) = introspection.names({pid})
    return name


class asker:
    def __init__(self, address: bytes = b"") -> None:
        self.sock = KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.sock.bind(address)
        self.sock.settimeout(1)

    def __enter__(self) -> socket.socket:
        return self.sock

    def __exit__(self, *_: object) -> None:
        self.sock.close()


ASKS_SOUNDLY = introspection.QUERY.pack(introspection.LOOK_MAGIC, 1, introspection.PROCESS, 0)


def test_a_flood_of_questions_leaves_the_process_and_its_connections_alone():
    """The answers are bounded, nobody reads them, and the next one who asks is answered."""
    source = (
        PAIR
        + """
    far.recv(1000)
    def echo():
        while data := far.recv(100):
            far.sendall(data)
    threading.Thread(target=echo, daemon=True).start()
    for _ in range(2000):
        near.sendall(b"0123456789"); assert near.recv(100) == b"0123456789"
    say("went on " + fastsock.path_of(near).path)
    told()
    """
    )
    with running(source) as program:
        program.line()
        name = ask_name(program.pid)
        program.tell()
        with asker() as sock:
            sock.setblocking(False)
            question = introspection.QUERY.pack(introspection.LOOK_MAGIC, 7, introspection.ROLL, 0)
            ends = time.monotonic() + 1
            while time.monotonic() < ends:
                introspection._send(sock, name, question)
            answers = 0
            try:
                while sock.recv(1 << 16):
                    answers += 1
            except BlockingIOError:
                pass
        assert answers <= 600
        assert program.line() == "went on ring"
        assert seen(program.pid).pid == program.pid


UNANSWERED: dict[str, tuple[bytes, str, bool]] = {  # the question, whether it comes from a file, with a descriptor
    "empty": (b"", "", False),
    "short": (b"fs-look1", "", False),
    "another magic": (struct.pack("=QQII", 1, 1, 0, 0), "", False),
    "another kind": (introspection.QUERY.pack(introspection.LOOK_MAGIC, 1, 99, 0), "", False),
    "long": (introspection.QUERY.pack(introspection.LOOK_MAGIC, 1, 0, 0) + b"x", "", False),
    "from the file system, whose look-up could take any time": (ASKS_SOUNDLY, "asker", False),
    "with a descriptor": (ASKS_SOUNDLY, "", True),
}


@pytest.mark.parametrize("what", UNANSWERED)
def test_what_is_not_answered(what, tmp_path):
    """And leaves no descriptor."""
    question, file, brings = UNANSWERED[what]
    with running(IDLE) as program:
        program.line()
        name = ask_name(program.pid)
        before = len(os.listdir(f"/proc/{program.pid}/fd"))
        with asker(str(tmp_path / file) if file else b"") as sock, open("/dev/null") as null:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", null.fileno()))] if brings else []
            sock.sendmsg([question], rights, 0, name)
            sock.settimeout(0.3)
            with pytest.raises(TimeoutError):
                sock.recv(100)
        assert seen(program.pid)
        assert len(os.listdir(f"/proc/{program.pid}/fd")) == before


def test_answers_of_another_user_or_garbage_are_not_believed(monkeypatch):
    """Anybody may hold a name that looks like a connection thread's."""
    token = os.urandom(8).hex()
    name = f"\0fastsock/ask/{token}".encode()
    with asker(name) as impostor:
        monkeypatch.setattr(introspection, "names", lambda pids: [name])
        import threading

        def answer():
            for _ in range(3):
                data, _, _, back = impostor.recvmsg(100)
                _, tag, kind, _ = introspection.QUERY.unpack(data)
                impostor.sendto(b"garbage", back)
                impostor.sendto(
                    introspection.SEEN.pack(introspection.SEEN_MAGIC, tag, kind, 5, 3, introspection.VERSION) + b"cut",
                    back,
                )
                impostor.sendto(
                    introspection.SEEN.pack(introspection.SEEN_MAGIC, tag + 1, kind, 5, 0, introspection.VERSION), back
                )

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert introspection.query(patience=0.3) == []
        thread.join(5)


# ---- what stands in two places -----------------------------------------------------------------------------


def test_the_layouts_are_those_of_the_headers():
    types = (CORE / "include/fastsock_types.h").read_text()
    counters = re.search(r"FS_COUNTERS\(COUNTER\)((?:.*\\\n)+.*\n)", types)[1]
    assert tuple(re.findall(r"\bCOUNTER\((\w+)\)", counters)) == introspection.COUNTERS
    header = (CORE / "control/introspection.h").read_text()
    for name, value in re.findall(r"FS_INFO_(\w+) = (\d+)", header):
        assert getattr(introspection, name) == int(value), name
    assert set(introspection.COUNTERS) <= {field.name for field in attrs.fields(__import__("fastsock").Stats)}


def test_every_reason_has_a_number_that_stays():
    """The numbers are told between processes: a new reason stands last."""
    assert REASONS[:3] == (Reason.FEW, Reason.SEEKING, Reason.EXCLUDED)
    assert REASONS[15:17] == (Reason.VIOLATION, Reason.VERSION)
    assert len(set(REASONS)) == len(REASONS) < 255
