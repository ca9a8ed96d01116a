"""The connection thread, as the rest of the process sees it: started, and started again after a fork."""

from __future__ import annotations

from fastsock._native import connector
from fastsock.observability import WARNING, event

__all__ = ["ensure_thread", "start_thread_again"]


def ensure_thread() -> None:
    """Starts the connection thread; without one, connections stay on kernel TCP."""
    try:
        connector.ensure_thread()
    except OSError as error:
        event(WARNING, "fastsock.no_connection_thread", error=repr(error))


def start_thread_again() -> bool:
    """Starts the connection thread if a fork has stopped it and is over. False if it has to be tried again."""
    try:
        connector.start_again()
    except OSError as error:
        event(WARNING, "fastsock.no_connection_thread", error=repr(error))
        return False
    return True
