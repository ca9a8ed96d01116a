"""Peers in other processes: a real Python program on the far end, and children by fork."""

import contextlib
import inspect
import os
import select
import signal
import socket
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import pairs
from harness.pairs import FAMILIES, KINDS, SECONDS, configured, socket_class, until
from harness.processes import Process, say, settle, told  # noqa: F401 - for what children run


class Child(Process):
    """A real Python process that runs one function on its end of a connection, and talks over its pipes."""

    def __init__(self, function: Callable[..., Any], *arguments: str) -> None:
        source = textwrap.dedent(inspect.getsource(function))
        start = "from conformance.blocking.processes import child_main; child_main()"
        path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        words = [sys.executable, "-c", start, source, function.__name__, *arguments]
        super().__init__(words, env={**os.environ, "PYTHONPATH": path})


@contextlib.contextmanager
def spawn(kind: str, function: Callable[..., Any]) -> Iterator[tuple[socket.socket, Child]]:
    """Starts a process that runs ``function(sock)``; yields our end, which accepted, and the process.

    The function's source is run with the names of this module and of ``pairs``, and nothing else, in scope.
    """
    with configured(kind), socket_class(KINDS[kind].near_fastsock)(socket.AF_INET) as listener:
        listener.bind((FAMILIES[socket.AF_INET], 0))
        listener.listen(1)
        listener.settimeout(SECONDS)
        with Child(function, kind, str(listener.getsockname()[1])) as child:
            near = listener.accept()[0]
            near.settimeout(None)
            listener.close()
            with near:
                if KINDS[kind].moved:
                    settle(near)
                yield near, child


def child_main() -> None:
    """What a ``Child`` runs: connects, follows the move and calls the function it was given."""
    source, name, kind, port = sys.argv[1:]
    scope = {**vars(pairs), **globals()}
    exec(source, scope)
    with configured(kind):
        far = socket_class(KINDS[kind].far_fastsock)(socket.AF_INET)
        far.connect((FAMILIES[socket.AF_INET], int(port)))
        if KINDS[kind].moved:
            settle(far, leads=False)
        scope[name](far)


@contextlib.contextmanager
def forked(function: Callable[..., object], *args: object) -> Iterator[int]:
    """Runs ``function(*args)`` in a forked child and yields its process id; fails unless it returns normally.

    A test may kill it.
    """
    with warnings.catch_warnings():
        # 3.12 warns that threads stay behind; the child needs none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(3 * SECONDS)
            function(*args)
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    try:
        yield pid
        until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the child's end")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the forked child ended with {status}, see its traceback"


class Gate:
    """One process waits until another opens the gate."""

    def __init__(self) -> None:
        self._exit, self._entry = os.pipe()

    def open(self) -> None:
        os.write(self._entry, b"!")

    def wait(self) -> None:
        assert select.select([self._exit], [], [], SECONDS)[0], "nobody opened the gate"
        os.read(self._exit, 1)

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._exit)
        os.close(self._entry)
