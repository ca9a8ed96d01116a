"""gevent and eventlet replace the socket module: fastsock serves their sockets, whoever comes first."""

import pytest
from harness.processes import FASTSOCK, PLAIN, command, ended

PATCH = "import fastsock; fastsock.patch()\n"
LIBRARIES = {
    "gevent": "import gevent.monkey; gevent.monkey.patch_all()\n",
    "eventlet": "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()\n",
}
ECHO = """
import os, socket, sys, threading

def echo(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)

def serve(listener):
    for _ in range(3):
        threading.Thread(target=echo, args=listener.accept()[:1]).start()

def use(number):
    with socket.create_connection(listener.getsockname(), timeout=10) as connection:
        for length in (1, 1000, 20_000) * 5:
            connection.sendall(bytes([number]) * length)
            got = b""
            while len(got) < length:
                got += connection.recv(65536)
            answers.append((number, got == bytes([number]) * length))

exit_, entry = os.pipe()  # it tells of the child: gevent's own waitpid does not always see the end of one
if os.fork() == 0:
    os.write(entry, b"child")
    os._exit(0)
print(os.read(exit_, 100))
answers = []
with socket.create_server(("127.0.0.1", 0)) as listener:
    threads = [threading.Thread(target=serve, args=[listener])]
    threads += [threading.Thread(target=use, args=[number]) for number in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print(sorted(answers))
found = sys.modules.get("fastsock")
print(type(socket.socket), socket.socket.__module__.partition(".")[0])
print(found.stats().connections_ring if found else 0)
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_served_whichever_is_first(library):
    def done(way, source):
        # eventlet's own resolver imports dnspython, and that trio, which cannot stand its sockets (Python 3.10)
        return ended(command(way, "-c", source + ECHO), EVENTLET_NO_GREENDNS="yes", FASTSOCK_MOVE_AFTER="0")

    replaces = LIBRARIES[library]
    *plain, moved = done(PLAIN, replaces).stdout.splitlines()
    assert (plain[-1], moved) == (f"<class 'type'> {library}", "0")
    for way, source in ((FASTSOCK, replaces), (PLAIN, PATCH + replaces), (PLAIN, replaces + PATCH)):
        *same, moved = done(way, source).stdout.splitlines()
        assert same == plain
        assert int(moved) > 0 or source.endswith(PATCH)  # eventlet's epoll instance is older than the patch then
