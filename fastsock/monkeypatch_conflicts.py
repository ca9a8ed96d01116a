"""Conflicts with gevent and eventlet, which replace the socket module too. fastsock then undoes its patch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from fastsock.import_hooks import forget, when_imported

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["unwatch", "watch", "who_has_patched"]

# Module, its function that replaces the socket module, and its function that tells if it has done so.
_OTHERS = {
    "gevent.monkey": ("patch_socket", "is_module_patched"),
    "eventlet.patcher": ("monkey_patch", "is_monkey_patched"),
}


def who_has_patched() -> str | None:
    """Returns the name of the module that has replaced the socket module, or None."""
    for name, (_, query) in _OTHERS.items():
        has_patched = getattr(sys.modules.get(name), query, None)
        if has_patched is not None and has_patched("socket"):
            return name
    return None


def watch(give_way: Callable[[str], None]) -> None:
    """Calls `give_way(module name)` right before one of the modules replaces the socket module."""
    global _give_way
    _give_way = give_way
    for name in _OTHERS:
        when_imported(name, functools.partial(_wrap, name))


def unwatch() -> None:
    """Stops `watch`."""
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
