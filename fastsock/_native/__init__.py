"""The native core. See docs/design.md for what the modules are."""

import sys

# Before anything native is loaded: the bookkeeping of the core is guarded by the interpreter's lock.
if "t" in sys.abiflags:
    raise ImportError(
        "fastsock needs CPython with its global interpreter lock: it does not run on the free-threaded build yet."
    )
