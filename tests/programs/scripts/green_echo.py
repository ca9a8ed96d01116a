"""An echo server and its clients, on the green threads of WHICH library; the words after it name a moment for
fastsock: "patch-before" or "patch-after" the library has replaced the socket module."""

import logging
import os
import sys

if "patch-before" in sys.argv:
    import fastsock

    logging.basicConfig(format="%(message)s")
    fastsock.patch()

if sys.argv[1] == "gevent":
    import gevent.monkey

    gevent.monkey.patch_all()
else:
    import warnings

    warnings.simplefilter("ignore")
    import eventlet

    eventlet.monkey_patch()

if "patch-after" in sys.argv:
    import fastsock

    logging.basicConfig(format="%(message)s")
    fastsock.patch()

import socket
import threading


def echo(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def serve(listener):
    for _ in range(3):
        threading.Thread(target=echo, args=(listener.accept()[0],)).start()


def use(port, number, answers):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for length in (1, 1000, 20_000):
            sent = bytes([number]) * length
            connection.sendall(sent)
            got = b""
            while len(got) < length:
                got += connection.recv(65536)
            answers.append((number, got == sent))


# A pipe tells of the child: gevent's own waitpid does not always see the end of one.
exit_, entry = os.pipe()
if os.fork() == 0:
    os.write(entry, b"child")
    os._exit(0)
print(os.read(exit_, 100))

answers = []
with socket.create_server(("127.0.0.1", 0)) as listener:
    threads = [threading.Thread(target=serve, args=(listener,))]
    threads += [threading.Thread(target=use, args=(listener.getsockname()[1], n, answers)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(sorted(answers))
print(type(socket.socket), socket.socket.__module__.partition(".")[0])
found = sys.modules.get("fastsock")
print(bool(found and (found.is_patched() or found.stats().connections_tcp or found.stats().connections_ring)))
