"""The native modules; docs/design.md describes them.

One shared object, `_core`, contains all of them and the core in C. The import system expects a file for each module, so
a finder of our own points it to the shared object.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType

# Checked before anything native is loaded: the GIL protects data of the core.
if "t" in sys.abiflags:
    raise ImportError("fastsock does not support the free-threaded build of Python yet: use the build with the GIL.")

MODULES = {"control", "endpoint", "libc_front", "messages", "relay_protocol", "transport", "transport_socket"}
"""The modules in the shared object."""


class Finder:
    """Finds the modules of this package. Uses the default finder to find the shared object."""

    package = __name__

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        if package != __name__ or module not in MODULES:
            return None
        core = PathFinder.find_spec(f"{package}._core", path)
        if core is None or core.origin is None:
            return None  # not built
        spec = ModuleSpec(name, ExtensionFileLoader(name, core.origin), origin=core.origin)
        spec.has_location = True  # the module's __file__ is the shared object
        return spec


if Finder.find_spec(f"{__name__}.libc_front", __path__) is None:
    # With this name and path `python -m fastsock` prints one line instead of a traceback.
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    raise ImportError(
        f"fastsock is not built in {folder}: run `pip install -e .` there. If it is installed elsewhere, change to "
        "another folder, or use the command fastsock instead of python -m fastsock",
        name="fastsock",
        path=folder,
    )

# First in the list, so that module files of an older build are never found. The finder has no state, so one is enough
# even if the package is imported again.
if not any(getattr(finder, "package", None) == __name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, Finder)
