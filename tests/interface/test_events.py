"""What is logged, and that a program which logs everything is not disturbed by it."""

import logging
import logging.handlers
import pickle
import subprocess
import sys

import pytest
from harness.hostile_peer import events
from harness.pairs import Task, listening, make_pair, read_exactly

import fastsock
from fastsock import config

pytestmark = pytest.mark.usefixtures("bounded")


def test_paths_are_told_to_who_asks_for_them(caplog):
    with caplog.at_level(logging.DEBUG, "fastsock"), make_pair("ring"):
        assert len(events(caplog, "fastsock.path")) == 2


def test_a_root_logger_at_debug_asks_for_no_paths(caplog):
    with caplog.at_level(logging.DEBUG), make_pair("ring"):
        assert events(caplog, "fastsock.path") == []


def test_a_handler_that_logs_over_a_socket_sends_its_records_and_no_others():
    """`SocketHandler` holds its lock while it sends; a record of ours in there would go into the middle of its own, or
    wait in another thread for the lock."""
    root, own = logging.getLogger(), logging.getLogger("program")
    level, settings = root.level, config.active()
    fastsock.patch(move_after=0, _meeting_ms=10_000)
    try:
        with listening() as listener:
            handler = logging.handlers.SocketHandler(*listener.getsockname())
            root.addHandler(handler)
            root.setLevel(logging.DEBUG)

            def serve() -> list[str]:
                with listener.accept()[0] as sock:
                    told = []
                    while len(told) < 20:
                        size = int.from_bytes(read_exactly(sock, 4), "big")
                        told.append(pickle.loads(read_exactly(sock, size))["msg"])
                    assert fastsock.path_of(sock).path == "ring"
                    return told

            server = Task(serve)
            for number in range(20):
                own.debug("record %d", number)
            assert server.result() == [f"record {number}" for number in range(20)]
            handler.close()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        fastsock.unpatch()
        config.use(settings)


def test_nothing_is_imported_for_events_that_nobody_asked_for():
    """A program patched as it starts finds logging, and what structlog needs, not loaded."""
    program = """
import sys
before = set(sys.modules)
import fastsock
from fastsock import config
fastsock.patch(move_after=0)
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    near = socket.create_connection(listener.getsockname())
    far = listener.accept()[0]
    while fastsock.path_of(near).path == "tcp":
        near.sendall(b"x")
        far.sendall(far.recv(1))
        near.recv(1)
print(*({"logging", "structlog", "asyncio", "ssl"} & (set(sys.modules) - before)))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout.strip() == ""


NO_LOGGER = {
    "no descriptor": """
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
""",
    "modules out of reach": "sys.path.clear(); sys.path_importer_cache.clear()\n",
}


@pytest.mark.parametrize("why", NO_LOGGER)
def test_an_event_of_a_program_that_cannot_import_the_logger(why):
    """It may be what tells that descriptors have run out, from within a call that must not fail for it; or the program
    has given up its user or its root directory since."""
    program = f"import os, resource, sys\nfrom fastsock import observability\n{NO_LOGGER[why]}"
    program += "observability.event(observability.WARNING, 'fastsock.stays_on_ring', fd=7)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stderr.startswith("fastsock.stays_on_ring {'fd': 7} (not logged: ")
