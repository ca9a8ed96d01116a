"""Calls a function when a module has been imported. So their classes can be changed without importing them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

__all__ = ["forget", "when_imported"]

_waiting: dict[str, Callable[[ModuleType], None]] = {}


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Calls `act` once with the module `name`: at once if it is loaded, else right after its import."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
        return
    _waiting[name] = act
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget(name: str) -> None:
    """Cancels `when_imported` for a module."""
    _waiting.pop(name, None)


class _Finder:
    """Lets the other finders find the module, and wraps the loader that they return.

    The classes of `importlib.abc` are not used, as the import system does not require them and some versions of that
    module import `tempfile`, `shutil` and `random`: a tenth of the time of `import fastsock`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not self and find is not None else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec  # type: ignore[no-any-return]
        return None


class _Loader:
    """Delegates to the real loader, and calls back when the module is complete."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.real
        module.__loader__ = self.real
        self.real.exec_module(module)
        act = _waiting.pop(module.__name__, None)
        if act is not None:
            act(module)


_finder = _Finder()
