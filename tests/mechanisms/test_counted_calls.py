"""The counters of system calls, against what strace counts. Skipped without strace, or where it may not trace."""

import json
import re
from pathlib import Path

import pytest
from harness.counting import traced

AT_THE_ENDS = 4  # calls, of those of fifty rounds
TRACED = "futex,write,poll,ppoll,sendmsg"
BLOCKING = """
import json, os, sys, threading
import fastsock

NAMES = ("sleeps", "doorbells_rung", "system_calls", "polls_paid", "polls_unpaid", "poll_ns", "poll_unpaid_ns")

threads = [threading.get_native_id()]  # without the connection thread, which counts nothing

def counts():
    stats = fastsock.stats()
    return [getattr(stats, name) for name in NAMES]

def serve(far):
    threads.append(threading.get_native_id())
    for _ in range(ROUNDS):
        far.sendall(far.recv(100))

ROUNDS = 50
listener = fastsock.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
near = fastsock.socket()
near.connect(listener.getsockname())
far = listener.accept()[0]
while {fastsock.path_of(near).reason, fastsock.path_of(far).reason} != {"both directions"}:
    near.sendall(b"x"); far.recv(1); far.sendall(b"x"); near.recv(1)
os.write(2, b"BEGIN")
before = counts()
serving = threading.Thread(target=serve, args=(far,))
serving.start()
for _ in range(ROUNDS):
    near.sendall(b"x" * 10)
    assert near.recv(100) == b"x" * 10
serving.join()
counted = dict(zip(NAMES, (now - then for now, then in zip(counts(), before))))
os.write(2, b"END")
print(json.dumps([counted, threads]))
"""


LOOP = (
    BLOCKING.partition("def serve(far)")[0]
    + """
import asyncio

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        paths.append(transport)
    def data_received(self, data):
        if data == b"quiet":
            quiet.set()  # what this thread does for earlier messages it has counted
        else:
            self.transport.write(data)

def settle():
    quiet.clear()
    near.sendall(b"quiet")
    quiet.wait()

async def serve():
    threads.append(threading.get_native_id())
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    port.append(server.sockets[0].getsockname()[1])
    ready.set()
    await server.serve_forever()

ROUNDS = 400  # few of them sleep on a busy machine
port, paths, ready, quiet = [], [], threading.Event(), threading.Event()
threading.Thread(target=lambda: fastsock.new_event_loop("KIND").run_until_complete(serve()), daemon=True).start()
ready.wait()
near = fastsock.socket()
near.connect(("127.0.0.1", port[0]))
near.sendall(b"x"); near.recv(1)  # it is accepted by now
while {fastsock.path_of(near).reason, fastsock.path_of(paths[0]).reason} != {"both directions"}:
    near.sendall(b"x"); near.recv(1)
settle()
os.write(2, b"BEGIN")
before = counts()
for _ in range(ROUNDS):
    near.sendall(b"x" * 10)
    assert near.recv(100) == b"x" * 10
settle()
counted = dict(zip(NAMES, (now - then for now, then in zip(counts(), before))))
os.write(2, b"END")
print(json.dumps([counted, threads]), flush=True)
os._exit(0)
"""
)


def seen(source: str, tmp_path: Path, **variables: str) -> tuple[dict[str, int], list[str]]:
    """What the program has counted, and the calls that strace saw meanwhile."""
    said, [calls] = traced(source, TRACED, tmp_path, **variables)
    counted, threads = json.loads(said)
    return counted, [call for call in calls if int(call.split()[0]) in threads]


def begun(calls: list[str], pattern: str) -> int:
    """Calls that match. One that strace shows in two lines counts where it begins."""
    return sum(1 for call in calls if re.search(pattern, call) and "resumed>" not in call)


def test_sleeps_and_wakeups_of_blocking_calls(tmp_path: Path) -> None:
    counted, calls = seen(BLOCKING, tmp_path, FASTSOCK_POLL_US="0")
    # Words that processes share: CPython's own locks are private futexes.
    slept, woke = begun(calls, r"futex\(.*FUTEX_WAIT,"), begun(calls, r"futex\(.*FUTEX_WAKE,")
    assert counted["sleeps"] == slept > 0
    assert counted["doorbells_rung"] == woke > 0
    assert counted["system_calls"] == slept + woke
    assert counted["polls_paid"] == counted["polls_unpaid"] == counted["poll_ns"] == counted["poll_unpaid_ns"] == 0


def test_a_poll_of_one_connection_sleeps_as_a_receive_does(tmp_path: Path) -> None:
    """No eventfd is told."""
    wait = """
import select
def wait(end):
    waits = select.poll()
    waits.register(end, select.POLLIN)
    waits.poll()

def serve("""
    source = BLOCKING.replace("\ndef serve(", wait).replace("    assert near", "    wait(near)\n    assert near")
    source = source.replace("    far.sendall(far", "    wait(far)\n        far.sendall(far")
    counted, calls = seen(source, tmp_path, FASTSOCK_POLL_US="0")
    slept, woke = begun(calls, r"futex\(.*FUTEX_WAIT,"), begun(calls, r"futex\(.*FUTEX_WAKE,")
    assert counted["sleeps"] == slept > 0
    assert counted["doorbells_rung"] == woke > 0
    assert begun(calls, r'write\(\d+, "\\1') == 0


def test_a_change_of_events_asks_the_kernel_nothing(tmp_path: Path) -> None:
    """Room is wished for and taken back around each message, as libzmq does. The wait itself asks now and then."""
    changes = """
import select
instance = select.epoll()
instance.register(near, select.EPOLLIN)
far.sendall(b"x"); instance.poll(); near.recv(1); instance.poll(0)
before = counts()
for _ in range(200):
    instance.modify(near, select.EPOLLIN | select.EPOLLOUT)
    assert instance.poll() == [(near.fileno(), select.EPOLLOUT)]
    instance.modify(near, select.EPOLLIN)
    assert instance.poll(0) == []
"""
    _, calls = seen(BLOCKING.replace("before = counts()", changes), tmp_path)
    asked = begun(calls, r"ppoll\(\[\{fd=\d+, events=POLLIN\|POLLPRI\|POLLOUT")
    assert asked < 20, calls


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_wakeups_of_a_loop(tmp_path: Path, kind: str) -> None:
    """Its event set is told by an eventfd, which is polled before. Its own sleeps are the loop's."""
    counted, calls = seen(LOOP.replace("KIND", kind), tmp_path, FASTSOCK_POLL_US="0")
    slept, woke = begun(calls, r"futex\(.*FUTEX_WAIT,"), begun(calls, r"futex\(.*FUTEX_WAKE,")
    told = begun(calls, r'write\(\d+, "\\1\\0\\0\\0\\0\\0\\0\\0", 8')
    asked = begun(calls, r"sendmsg\(.*fs-ask")  # its connection thread, while the page has not come
    # (The loop goes on at BEGIN and END: a call there may be counted on one side of them, and be seen on the other.)
    assert abs(counted["sleeps"] - slept) <= AT_THE_ENDS < slept
    assert abs(counted["doorbells_rung"] - (woke + told + asked)) <= AT_THE_ENDS
    # (The eventfd is looked at before it is written to. A request of a connection thread counts as three calls.)
    assert counted["system_calls"] >= slept + woke + 2 * told + asked - 2 * AT_THE_ENDS


def test_time_of_polls_that_do_not_pay(tmp_path: Path) -> None:
    """There is such time if there were such waits."""
    counted, calls = seen(BLOCKING, tmp_path, FASTSOCK_POLL_US="1000")
    assert counted["sleeps"] == begun(calls, r"futex\(.*FUTEX_WAIT,")
    assert 0 <= counted["poll_unpaid_ns"] <= counted["poll_ns"]
    assert counted["poll_unpaid_ns"] > 0 or counted["polls_unpaid"] == 0
