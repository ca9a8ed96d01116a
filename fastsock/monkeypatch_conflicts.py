"""gevent and eventlet replace the socket module too. Two cannot: fastsock gives way, whichever comes first."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from fastsock.import_hooks import forget, when_imported

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["unwatch", "watch", "who_has_patched"]

# The module of each, its function that replaces the socket module, and the one that tells whether it has.
_OTHERS = {
    "gevent.monkey": ("patch_socket", "is_module_patched"),
    "eventlet.patcher": ("monkey_patch", "is_monkey_patched"),
}


def who_has_patched() -> str | None:
    """The module that has replaced the socket module already."""
    for name, (_, tells) in _OTHERS.items():
        has_patched = getattr(sys.modules.get(name), tells, None)
        if has_patched is not None and has_patched("socket"):
            return name
    return None


def watch(give_way: Callable[[str], None]) -> None:
    """From now on calls `give_way(module name)` just before one of them replaces the socket module."""
    global _give_way
    _give_way = give_way
    for name in _OTHERS:
        when_imported(name, functools.partial(_wrap, name))


def unwatch() -> None:
    """Ends `watch`."""
    global _give_way
    _give_way = None
    for name in _OTHERS:
        forget(name)


_give_way: Callable[[str], None] | None = None


def _wrap(name: str, module: Any) -> None:
    replaces = _OTHERS[name][0]
    original = getattr(module, replaces, None)
    if original is None or hasattr(original, "_watched_by_fastsock"):
        return

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if _give_way is not None:
            _give_way(name)
        return original(*args, **kwargs)

    watched._watched_by_fastsock = True  # type: ignore[attr-defined]
    setattr(module, replaces, watched)
