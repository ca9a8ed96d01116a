"""asyncio on the virtual interface: loops, and the transports that they give to programs."""

from __future__ import annotations

import asyncio  # noqa: F401 - before the modules of this layer: under patch() its import asks for them, whole
import sys
from typing import TYPE_CHECKING, Any

from fastsock.aio.loops import new_event_loop
from fastsock.aio.runner import run

if TYPE_CHECKING:
    from fastsock.aio.policy import EventLoopPolicy as EventLoopPolicy

__all__ = ["new_event_loop", "run"]
if sys.version_info < (3, 14):  # later it is deprecated: there for who names it, not for `import *`
    __all__ += ["EventLoopPolicy"]


def __getattr__(name: str) -> Any:
    if name == "EventLoopPolicy":
        from fastsock.aio import policy

        return policy.EventLoopPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
