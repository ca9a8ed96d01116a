"""Log events, through structlog.

fastsock never configures logging. Its events go to the stdlib logger "fastsock" through structlog, with the processors
that the application configured. The data path logs nothing. logging and structlog are imported at the first event: the
start of a patched program then takes half the time, and the program does not find modules loaded that it did not
import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DEBUG", "INFO", "WARNING", "event", "log", "wants_details"]

DEBUG, INFO, WARNING = 10, 20, 30  # as in logging
_log: Any = None

recorder: Callable[[str, dict[str, Any]], None] | None = None
"""Receives every event. `fastsock doctor -- PROGRAM` sets it in the processes that it watches."""


def event(level: int, what: str, /, **values: Any) -> None:
    """Logs an event. Costs nothing if the level is disabled."""
    if recorder is not None:
        recorder(what, values)
    log(level, what, values)


def log(level: int, what: str, values: dict[str, Any]) -> None:
    """Logs an event that the recorder has got already."""
    if level < WARNING and "logging" not in sys.modules:
        return  # without logging no handler can exist
    try:
        log = _logger(level)
    except (OSError, ImportError) as error:
        # An import needs a descriptor, and there may be none left. After a change of user or root directory the modules
        # may not be found.
        print(f"{what} {values} (not logged: {error})", file=sys.stderr)
        return
    except MemoryError:
        return  # the event may be about this; the caller must go on
    if log is not None:
        log.log(level, what, **values)


def _logger(level: int) -> Any:
    """Returns the logger, or None if the level is disabled."""
    global _log
    import logging

    logger = logging.getLogger("fastsock")
    if not logger.isEnabledFor(level):
        return None
    if _log is None:
        import structlog

        _log = structlog.wrap_logger(logger, wrapper_class=structlog.stdlib.BoundLogger)
    return _log


def wants_details() -> bool:
    """Returns true if the level DEBUG was set on the logger "fastsock" itself. Takes no lock.

    Only then paths of connections are logged: a program that sets only the root logger to DEBUG does not get them."""
    logging = sys.modules.get("logging")
    # getLogger() would take the lock of logging, which a thread that waits for this one may hold.
    return logging is not None and 0 < getattr(logging.Logger.manager.loggerDict.get("fastsock"), "level", 0) <= DEBUG
