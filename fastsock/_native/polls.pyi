"""What stands for `select.select` and `select.poll`, with the setting `ready_on_ring`."""

from collections.abc import Iterable
from typing import Any, final

def select(
    rlist: Iterable[Any], wlist: Iterable[Any], xlist: Iterable[Any], timeout: float | None = None, /
) -> tuple[list[Any], list[Any], list[Any]]:
    """As select.select."""

def poll() -> Poll:
    """As select.poll."""

@final
class Poll:
    """What `poll` makes, and nobody else."""

    def register(self, fd: Any, eventmask: int = ..., /) -> None:
        """As select.poll.register."""
    def modify(self, fd: Any, eventmask: int, /) -> None:
        """As select.poll.modify."""
    def unregister(self, fd: Any, /) -> None:
        """As select.poll.unregister."""
    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        """As select.poll.poll."""
