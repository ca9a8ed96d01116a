"""The asyncio layer: event loops whose connections can move to the ring."""

from __future__ import annotations

import asyncio  # noqa: F401 - first: under patch() its import needs the modules of this layer loaded
import sys
from typing import TYPE_CHECKING, Any

from fastsock.aio.loops import new_event_loop
from fastsock.aio.runner import run

if TYPE_CHECKING:
    from fastsock.aio.policy import EventLoopPolicy as EventLoopPolicy

__all__ = ["new_event_loop", "run"]
if sys.version_info < (3, 14):  # deprecated from 3.14 on: still available by name
    __all__ += ["EventLoopPolicy"]


def __getattr__(name: str) -> Any:
    if name == "EventLoopPolicy":
        from fastsock.aio import policy

        return policy.EventLoopPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
