"""The native part. See docs/design.md for what the modules are.

All of them are in one shared object, `_core`, together with the core in C that they share. The import system looks for
a file for each module, so a finder of our own tells it where they are.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType

# Before anything native is loaded: the bookkeeping of the core is guarded by the interpreter's lock.
if "t" in sys.abiflags:
    raise ImportError(
        "fastsock needs CPython with its global interpreter lock: it does not run on the free-threaded build yet."
    )

MODULES = {
    "socket_io",
    "socket_methods",
    "transport_io",
    "control",
    "os_calls",
    "endpoint",
    "gil",
    "completion_queue",
    "connection_info",
    "session_stats",
    "relay_protocol",
    "transport_socket",
    "socket_lifecycle",
    "loop_connection",
    "transport",
    "registry",
}
"""The modules that the shared object has."""


class Finder:
    """Finds the modules of this package, and nothing else. Where the shared object is, the usual finder knows."""

    package = __name__

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        if package != __name__ or module not in MODULES:
            return None
        core = PathFinder.find_spec(f"{package}._core", path)
        if core is None or core.origin is None:
            return None  # nothing is built here
        spec = ModuleSpec(name, ExtensionFileLoader(name, core.origin), origin=core.origin)
        spec.has_location = True  # the module's __file__ is the shared object
        return spec


if Finder.find_spec(f"{__name__}.registry", __path__) is None:
    # (By this name `python -m fastsock` prints one line, and no traceback.)
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    raise ImportError(
        f"fastsock is not built in {folder}: run `pip install -e .` there; or, if it is installed, leave that "
        "folder or use the command fastsock, not python -m fastsock",
        name="fastsock",
        path=folder,
    )

# In front, so that a module of an older build, which had a file of its own, is never found. The finder keeps nothing,
# so that one serves this package also when somebody imports it anew.
if not any(getattr(finder, "package", None) == __name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, Finder)
