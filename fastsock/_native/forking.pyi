"""Forks and the end of the process."""

from collections.abc import Callable
from typing import NoReturn

def before_fork() -> None:
    """Prepares a fork of this thread. The fork itself then counts the child as a holder of every connection."""

def after_fork_in_parent() -> None:
    """Called after a fork, successful or not. Keeps errno."""

def after_fork_in_child() -> None:
    """Called in the forked child, which inherits the endpoints but no other threads. Undecided connections start over."""

def before_exit() -> None:
    """Ends all connections, for os._exit, which runs no destructors."""

def keep_beneath(
    fork: Callable[[], int], forkpty: Callable[[], tuple[int, int]], exit: Callable[[int], NoReturn]
) -> None:
    """Sets the functions that `fork`, `forkpty` and `_exit` call: those of `os` before the first patch."""

def fork() -> int:
    """Like os.fork. Starts the connection thread again afterwards."""

def forkpty() -> tuple[int, int]:
    """Like os.forkpty. Starts the connection thread again afterwards."""

def _exit(status: int) -> NoReturn:
    """Like os._exit. Ends the connections first."""
