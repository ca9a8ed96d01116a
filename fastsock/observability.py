"""What fastsock tells: events through structlog.

The library never configures logging. Its events go to the stdlib logger "fastsock" through structlog, with the
processors that the application configured. Nothing is logged on the data path. Neither logging nor structlog is
imported before there is something to tell: a program that is patched as it starts must not find them loaded (and it
starts in half the time).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DEBUG", "INFO", "WARNING", "detail", "event"]

DEBUG, INFO, WARNING = 10, 20, 30  # as in logging
_log: Any = None

recorder: Callable[[str, dict[str, Any]], None] | None = None
"""Gets every event, of connections too: set by `fastsock doctor -- PROGRAM` in the processes that it watches."""


def event(level: int, what: str, /, **values: Any) -> None:
    """Logs an event, at no cost if nobody listens at that level."""
    if recorder is not None:
        recorder(what, values)
    _log_event(level, what, values)


def _log_event(level: int, what: str, values: dict[str, Any]) -> None:
    if level < WARNING and "logging" not in sys.modules:
        return  # nobody can have asked for it
    try:
        log = _logger(level)
    except (OSError, ImportError) as error:
        # An import needs a descriptor, and there may be none left. A program that has changed its user or its root may
        # not find its modules any more.
        print(f"{what} {values} (not logged: {error})", file=sys.stderr)
        return
    except MemoryError:
        return  # an event may be about that; the call of the program that it comes from goes on
    if log is not None:
        log.log(level, what, **values)


def _logger(level: int) -> Any:
    """The logger; None if nobody listens at that level."""
    global _log
    import logging

    logger = logging.getLogger("fastsock")
    if not logger.isEnabledFor(level):
        return None
    if _log is None:
        import structlog

        _log = structlog.wrap_logger(logger, wrapper_class=structlog.stdlib.BoundLogger)
    return _log


def detail(what: str, /, **values: Any) -> None:
    """Logs an event of one connection at level DEBUG, only if the logger "fastsock" was itself given a level for it.

    These come from inside calls such as `recv`, which may be a log handler's own, or be what a log handler in another
    thread waits for with its lock held. So a program that sets the root logger to DEBUG must not get them."""
    if recorder is not None:
        recorder(what, values)
    logging = sys.modules.get("logging")
    # (Not by getLogger, which takes a lock that may be held while somebody waits for us.)
    if logging is not None and 0 < getattr(logging.Logger.manager.loggerDict.get("fastsock"), "level", 0) <= DEBUG:
        _log_event(DEBUG, what, values)
