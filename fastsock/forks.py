"""A fork: the connection thread stops before it, and what parent and child do with their connections afterwards."""

from __future__ import annotations

import sys

from fastsock._native import connector
from fastsock._native.vi import Endpoint
from fastsock.thread import start_thread_again

__all__ = ["after_fork_in_child", "after_fork_in_parent", "before_fork"]


def before_fork(endpoints: list[Endpoint]) -> None:
    """Threads do not survive a fork, and Python 3.12 and later warn of any."""
    connector.stop_thread()
    for endpoint in endpoints:
        endpoint.await_thread()


def after_fork_in_parent() -> None:
    """The fork is over, whether or not there is a child. From Python 3.12 on the thread starts later, with a call on a
    connection or a turn of a loop that has one: the interpreter warns of the threads that it finds after this."""
    connector.fork_is_over()
    if sys.version_info < (3, 12):
        start_thread_again()
    else:
        connector.wake_loops()


def after_fork_in_child(endpoints: list[Endpoint]) -> None:
    """What the parent was about to agree on is the parent's; the child starts over when it is the only holder."""
    connector.after_fork_in_child()
    for endpoint in endpoints:
        endpoint.start_over()
