"""A fork: the connection thread stops before it, and what parent and child do with their connections afterwards."""

from __future__ import annotations

import sys
from contextlib import suppress

from fastsock import regions, rendezvous
from fastsock._native import connector
from fastsock._native.vi import Endpoint, claim
from fastsock.thread import start_thread_again

__all__ = ["after_fork_in_child", "after_fork_in_parent", "before_fork"]


def before_fork(endpoints: list[Endpoint]) -> None:
    """Threads do not survive a fork, and Python 3.12 and later warn of any."""
    connector.stop_thread()
    for endpoint in endpoints:
        # If nobody starts the thread when the fork is over, an operation does. (Any other step does it by itself.)
        if endpoint.attached and claim(endpoint, None, _thread_again):
            endpoint.next_step = endpoint.operations


def _thread_again(endpoint: Endpoint) -> None:
    if connector.forks_under_way():
        endpoint.next_step = endpoint.operations + 1  # another thread's; the child must not find the thread running
        return
    if start_thread_again():
        claim(endpoint, _thread_again, None)
    else:
        endpoint.next_step = endpoint.operations + 256  # a try costs system calls and a warning


def after_fork_in_parent() -> None:
    """The fork is over, whether or not there is a child. From Python 3.12 on the thread starts later: the interpreter
    warns of the threads that it finds after this."""
    connector.fork_is_over()
    if sys.version_info < (3, 12):
        start_thread_again()


def _answer_for_child(endpoint: Endpoint) -> None:
    """An inherited connection is used: its requests are answered here too, since the parent may let go of it."""
    if connector.forks_under_way():
        endpoint.next_step = endpoint.operations + 1
        return
    endpoint.step = None
    with suppress(OSError, MemoryError):
        if endpoint.kit is not None:
            endpoint.kit.answer_in_child()


def after_fork_in_child(endpoints: list[Endpoint]) -> None:
    """What the parent was about to agree on is the parent's; the child starts over when it is the only holder."""
    regions.Memory.give_back(connector.after_fork_in_child())
    for endpoint in endpoints:
        if endpoint.attached:
            endpoint.step, endpoint.next_step = _answer_for_child, endpoint.operations
        rendezvous.start_over(endpoint)
    regions.drop_parked_by_seeker()
