"""What people do with unix sockets in Python alone: a manager, a listener at a path, a descriptor that is passed on.
Prints what comes out, and, under fastsock, which connections were on the ring."""

import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Client, Listener, wait
from multiprocessing.reduction import recv_handle, send_handle

AMOUNT = 200


def path_of(connection):
    """Of a connection of multiprocessing's: "ring" or "tcp"; "plain" without fastsock."""
    if "fastsock" not in sys.modules:
        return "plain"
    import socket

    import fastsock

    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        return fastsock.path_of(sock).path


def goes_on(connection, call):
    """Calls until it has moved, which may take its time on a busy machine, and returns the path."""
    limit = time.monotonic() + 20
    while path_of(connection) == "tcp" and time.monotonic() < limit:
        call()
    return path_of(connection)


def work(shared, queue, number):
    for i in range(AMOUNT):
        shared[number] = i
    queue.put(number)


def echo(address):
    with Client(address, authkey=b"secret") as connection:
        while (got := connection.recv()) is not None:
            connection.send(got)
        print("descriptor", os.read(recv_handle(connection), 100), flush=True)
        while (got := connection.recv()) is not None:
            connection.send(got)


def main(method, folder):
    context = multiprocessing.get_context(method)
    with context.Manager() as manager:
        shared, queue = manager.dict(), manager.Queue()
        workers = [context.Process(target=work, args=(shared, queue, number)) for number in range(3)]
        for worker in workers:
            worker.start()
        work(shared, queue, 3)
        moved = [goes_on(shared._tls.connection, lambda: shared.update({3: AMOUNT}))]
        for worker in workers:
            worker.join()
        print("manager", sorted(shared.items()), sorted(queue.get() for _ in range(4)), flush=True)
    with Listener(f"{folder}/listener", authkey=b"secret") as listener:
        worker = context.Process(target=echo, args=(listener.address,))
        worker.start()
        with listener.accept() as connection:

            def exchange(text="x"):
                connection.send(text)
                assert wait([connection]) == [connection]
                assert connection.recv() == text

            for i in range(AMOUNT):
                exchange("x" * i)
            moved.append(goes_on(connection, exchange))
            connection.send(None)
            ours, theirs = os.pipe()
            os.write(theirs, b"through a pipe")
            send_handle(connection, ours, worker.pid)
            for i in range(AMOUNT):
                connection.send(b"y" * i * i)
                assert connection.recv() == b"y" * i * i
            moved.append(path_of(connection))
            connection.send(None)
            worker.join()
    print("exit codes", [each.exitcode for each in [*workers, worker]], flush=True)
    print("paths", moved, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
