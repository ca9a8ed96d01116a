"""`patch()`: serves the sockets of a running program at the C library's calls, and gives event loops our transports.

`unpatch()` undoes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fastsock import config, path_events
from fastsock.import_hooks import forget, when_imported
from fastsock.observability import INFO, event

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOOPS", "is_patched", "patch", "unpatch"]


LOOPS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("asyncio", lambda asyncio: asyncio.selector_events.BaseSelectorEventLoop),
    ("uvloop", lambda uvloop: uvloop.Loop),
)
"""Loop classes whose methods are replaced when their module has been imported (`fastsock.aio.loops.methods_for`)."""

_originals: dict[tuple[Any, str], Any] = {}


def is_patched() -> bool:
    """Returns true if `patch()` is in effect."""
    return path_events.patched


def patch(**settings: Any) -> None:
    """Serves every TCP socket that the process makes from now on, with settings from keyword arguments and FASTSOCK_*
    variables.

    May be called at any time, and again to change the settings; sockets, epoll instances and running event loops that
    are older stay with the kernel. With `enabled` false it undoes what it has done. Raises SettingError for a setting
    out of range, and TypeError for an unknown setting.
    """
    used = config.use(config.from_environment(settings))
    if not used.enabled:
        unpatch()
    elif not path_events.patched and path_events.install(True):
        for name, loop_class in LOOPS:
            when_imported(name, functools.partial(_patch_loop, loop_class))
        event(INFO, "fastsock.patched", settings=used)


def unpatch() -> None:
    """Serves no new sockets, but those of `fastsock.socket`. Existing connections go on."""
    if not path_events.patched:
        return
    for name, _ in LOOPS:
        forget(name)
    while _originals:
        (owner, name), original = _originals.popitem()
        if original is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
    path_events.uninstall()
    event(INFO, "fastsock.unpatched")


_INHERITED = object()
"""The class has inherited the method."""


def _patch_loop(loop_class: Callable[[Any], Any], module: Any) -> None:
    """Replaces methods of a loop class. All its loops, also existing ones, then create fastsock's transports."""
    from fastsock.aio import loops

    owner = loop_class(module)
    for name, method in loops.methods_for(owner).items():
        _originals[owner, name] = vars(owner).get(name, _INHERITED)
        setattr(owner, name, method)
