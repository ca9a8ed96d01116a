"""gevent and eventlet replace the socket module too: fastsock gives way, whoever comes first, and says so."""

import pytest
from harness.processes import FASTSOCK, PLAIN, command, ended

PATCH = "import fastsock, logging; logging.basicConfig(format='%(message)s'); fastsock.patch()\n"
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
        for length in (1, 1000, 20_000):
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
print(bool(found and (found.is_patched() or found.stats().connections_tcp or found.stats().connections_ring)))
"""


@pytest.mark.parametrize(("library", "module"), [("gevent", "gevent.monkey"), ("eventlet", "eventlet.patcher")])
def test_declines_whichever_is_first(library, module):
    def done(way, source):
        # eventlet's own resolver imports dnspython, and that trio, which cannot stand its sockets (Python 3.10)
        return ended(command(way, "-c", source + ECHO), EVENTLET_NO_GREENDNS="yes")

    replaces = LIBRARIES[library]
    plain = done(PLAIN, replaces).stdout
    assert plain.splitlines()[-2:] == [f"<class 'type'> {library}", "False"]
    for way, source, because in (
        (FASTSOCK, replaces, f"{module} replaces the socket module"),
        (PLAIN, PATCH + replaces, f"{module} replaces the socket module"),
        (PLAIN, replaces + PATCH, f"{module} has replaced the socket module"),
    ):
        result = done(way, source)
        assert result.stdout == plain
        [line] = [line for line in result.stderr.splitlines() if "fastsock." in line]
        assert "fastsock.declined" in line
        assert because in line
