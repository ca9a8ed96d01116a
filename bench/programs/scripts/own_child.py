"""usage: own_child.py manager|pipe      a program and the process that it starts by multiprocessing"""

import multiprocessing
import sys
from multiprocessing.connection import Connection

import clock


def drive_manager() -> None:
    with multiprocessing.Manager() as manager:
        held = manager.dict({"x": 1})

        def one() -> None:
            assert held["x"] == 1

        clock.repeat(one)


def echo(connection: Connection) -> None:
    while (got := connection.recv()) is not None:
        connection.send(got)


def drive_pipe() -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=echo, args=(there,))
    child.start()

    def one() -> None:
        here.send({"a": 1, "b": "text"})
        assert here.recv()["a"] == 1

    clock.repeat(one)
    here.send(None)
    child.join()


if __name__ == "__main__":
    {"manager": drive_manager, "pipe": drive_pipe}[sys.argv[1]]()
