"""What a Python program is told about its connections that libfastsock.so serves in the process."""

import json
import sys
from pathlib import Path

import pytest
from harness.pairs import until
from harness.processes import ended, environment, running

from fastsock.tools import introspection

pytestmark = pytest.mark.usefixtures("bounded")

PRELUDE = """
import ctypes, json, logging, os, signal, socket, sys, threading, time
KERNEL_WRITE = ctypes.CDLL(None).write  # its address from now on goes past the library
import fastsock
from fastsock._native import libc_front
fastsock.patch(move_after=0)

def pair(family=socket.AF_INET, host="127.0.0.1"):
    with socket.create_server((host, 0), family=family) as listener:
        near = socket.create_connection(listener.getsockname()[:2])
        return near, listener.accept()[0]

def exchange(near, far):
    for sender, receiver in ((near, far), (far, near)):
        sender.sendall(b"x")
        assert receiver.recv(9) == b"x"

def both(near, far):
    return {fastsock.path_of(sock).reason for sock in (near, far)} == {"both directions"}

def moved(*how):
    near, far = pair(*how)
    ends = time.monotonic() + 20
    while not both(near, far):
        assert time.monotonic() < ends
        exchange(near, far)
    return near, far

def until(look):
    ends = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < ends
        time.sleep(0.001)
    return found

class Kept(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())

told = []
def listen(name="fastsock", level=logging.DEBUG):
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.addHandler(Kept())

def write_past(sock):
    KERNEL_WRITE(sock.fileno(), b"zz", 2)
"""


def told_by(source: str, status: int = 0, **variables: str) -> list[str]:
    """The lines that a program prints."""
    return ended([sys.executable, "-c", PRELUDE + source], status, **variables).stdout.splitlines()


# ---- connections


LOOKS = {
    "socket": "near",
    "duplicate": "near.dup()",
    "by its number": "socket.socket(fileno=os.dup(near.fileno()))",
    "of another class": "type('Own', (socket.socket,), {})(fileno=os.dup(near.fileno()))",
    "connection of multiprocessing": "Connection(os.dup(near.fileno()))",
    "file": "near.makefile('rb')",
}  # fmt: skip


@pytest.mark.parametrize("what", LOOKS)
def test_path_of(what):
    imports = "from multiprocessing.connection import Connection\n"
    assert told_by(f"{imports}near, far = moved()\nprint(fastsock.path_of({LOOKS[what]}))") == [
        "Path(path='ring', reason='both directions')"
    ]


def test_path_of_a_stream_of_asyncio():
    source = """
import asyncio
async def main():
    async def serve(reader, writer):
        while data := await reader.read(9):
            writer.write(data)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    ends = time.monotonic() + 20
    while fastsock.path_of(writer).path == "tcp" and time.monotonic() < ends:
        writer.write(b"x")
        await reader.read(9)
    for each in writer, writer.transport, writer.get_extra_info("socket"):
        print(fastsock.path_of(each).path)
asyncio.run(main())
"""
    assert told_by(source) == ["ring"] * 3


def test_every_open_connection_is_listed_with_both_ends_and_its_counters():
    source = """
near, far = moved()
idle = pair(socket.AF_INET6, "::1")
other = near.dup()
near.sendall(b"x" * 1000)
def show(sock):
    address = sock.getsockname()
    return f"[{address[0]}]:{address[1]}" if sock.family == socket.AF_INET6 else "%s:%d" % address
found = {one.local: one for one in libc_front.connections()}
assert found.keys() == {show(sock) for sock in (near, far, *idle)}, found.keys()
assert found[show(near)].peer == show(far)
assert found[show(near)].fd == near.fileno()
assert found[show(near)].counters["bytes_sent"] >= 1000
assert found[show(near)].standing == (True, True, True, "")
assert found[show(idle[0])].standing == (False, False, False, "too few operations")
near.close()
assert len(libc_front.connections()) == 4  # its duplicate is open
other.close(); far.close()
assert len(libc_front.connections()) == 2
assert fastsock.stats().connections_ring == 2
many = [sock for _ in range(60) for sock in pair()]
assert len({one.fd for one in libc_front.connections()}) == 122
"""
    assert told_by(source) == []


def test_a_path_can_be_asked_for_while_others_connect_and_close():
    source = """
near, far = moved()
over = threading.Event()
def come_and_go():
    while not over.is_set():
        for sock in pair():
            sock.close()
threads = [threading.Thread(target=come_and_go) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(300):
    assert fastsock.path_of(near).path == "ring"
    assert {near.fileno(), far.fileno()} <= {one.fd for one in libc_front.connections()}
    fastsock.stats()
over.set()
for thread in threads: thread.join()
"""
    assert told_by(source) == []


def test_it_is_seen_from_outside():
    ended_before = "near, far = moved(); near.sendall(b'x' * 9000); near.close(); far.close(); "
    with running(f"{ended_before}near, far = moved(); near.sendall(b'x' * 1000); say(near.getsockname()[1]); told()",
                 prelude=f"{PRELUDE}\nfrom harness.processes import say, told\n") as program:  # fmt: skip
        port = program.line()
        (process,) = until(lambda: introspection.query({program.pid}), "the process answers")
    ends = {end.local.rpartition(":")[2]: end for end in process.connections}
    assert len(ends) == 2
    assert {(end.path, end.peer_pid) for end in ends.values()} == {("ring", program.pid)}
    assert ends[port].counters["bytes_sent"] >= 1000
    assert process.gone["bytes_sent"] >= 9000


def test_statistics_of_a_program_that_is_run(tmp_path: Path):
    program, file = tmp_path / "program.py", tmp_path / "stats.json"
    program.write_text(PRELUDE + "near, far = moved()")
    ended([sys.executable, "-m", "fastsock", "run", "--stats", file, program])
    assert json.loads(file.read_text())["connections_ring"] == 2


# ---- events


LOGGERS = {
    "the logger at DEBUG": ("listen()", 2),
    "the logger at INFO": ("listen(level=logging.INFO)", 0),
    "the root logger at DEBUG": ("listen(None)", 0),
    "no logger": ("", 0),
}


@pytest.mark.parametrize("logger", LOGGERS)
def test_paths_are_told_to_who_asks_for_them(logger):
    """And who asks for none has no thread for it."""
    listen, count = LOGGERS[logger]
    source = f"""
started = []
import fastsock.path_events as path_events
start = path_events._start_thread
path_events._start_thread = lambda *call: started.append(call) or start(*call)
{listen}
near, far = moved()
until(lambda: libc_front.events(True) == 0 and len([one for one in told if "fastsock.path" in one]) >= {count})
assert len(told) == {count} and all("path=ring" in one for one in told), told
assert bool(started) == bool({count})
"""
    assert told_by(source) == []


def test_a_violation_is_told_whoever_listens():
    said = ended([sys.executable, "-c", PRELUDE + "near, far = moved()\nwrite_past(near)\nfar.recv(9)"], 1).stderr
    assert "ConnectionResetError" in said
    assert "fastsock.violation" in said
    assert "bytes were written past fastsock" in said


def test_a_connection_that_stays_says_why():
    source = """
listen()
fastsock.patch(move_after=0, ports_excluded="1-65535")
near, far = pair()
exchange(near, far)
until(lambda: len(told) == 2)
print(*sorted(one.partition("path=")[2] for one in told), sep="\\n")
"""
    assert told_by(source) == ["tcp reason='address or port excluded'"] * 2


def test_what_waits_at_the_end_is_told():
    source = """
listen("fastsock", logging.WARNING)
near, far = moved()
write_past(near)
import atexit
atexit.register(lambda: print(*told))
from fastsock import path_events
path_events._start_thread = lambda *_: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
try: far.recv(9)
except ConnectionResetError: pass
"""
    (line,) = told_by(source)
    assert "fastsock.violation" in line


def test_a_forked_child_tells_its_own_events_and_not_its_parent_s():
    source = """
listen()
from fastsock import path_events
start, path_events._start_thread = path_events._start_thread, lambda *_: None
near, far = moved()
exchange(near, far)
child = os.fork()
if not child:
    signal.alarm(30)
    path_events._start_thread = start
    near, far = moved()
    until(lambda: len(told) == 2)
    time.sleep(0.05)
    assert len(told) == 2
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert told == [] and libc_front.events(True) == 2
"""
    assert told_by(source) == []


def test_a_log_handler_may_use_its_own_connection_and_any_lock():
    """The main thread may have the handler's lock just when an event comes: it would wait for itself."""
    source = """
lock = threading.Lock()
near, far = moved()
class Handler(logging.Handler):
    def emit(self, record):
        with lock:
            exchange(near, far)
            told.append(record.getMessage())
logging.getLogger("fastsock").addHandler(Handler())
logging.getLogger("fastsock").setLevel(logging.DEBUG)
kept = []
for number in range(20):
    with lock:
        kept.append(moved())
until(lambda: len(told) == 40)
"""
    assert told_by(source) == []


def test_more_events_than_wait_are_counted():
    source = """
listen()
from fastsock import path_events
start, path_events._start_thread = path_events._start_thread, lambda *_: None
fastsock.patch(move_after=0, ports_excluded="1-65535")
for _ in range(150):
    near, far = pair()
    exchange(near, far)
assert libc_front.events(True) == 192
start(path_events._start_teller, ())
until(lambda: len(told) == 192)
near, far = pair()
exchange(near, far)
until(lambda: libc_front.events(True) == 2)
start(path_events._start_teller, ())
until(lambda: len(told) == 194)
print(told[-2].partition("lost=")[2].split()[0], "lost=" in told[-1])
"""
    assert told_by(source) == ["108 False"]


def test_the_environment_of_these_programs_has_no_settings():
    assert not [name for name in environment() if name.startswith("FASTSOCK_")]
