"""How much of everything a session measures."""

from __future__ import annotations

import attrs


@attrs.frozen
class Plan:
    rounds: int = 3
    """Times that a row's processes are started afresh."""
    slices: int = 7
    """Of each pair in a round, besides a first one that does not count."""
    seconds: float = 0.3
    """A slice, at least."""
    null: bool = False
    """Whether every row has a null test, not only those whose goal it is."""
    calls: bool = True
    """Whether system calls are counted, in a slice of their own at the end."""
    mib: int = 200
    """A file's size in the FTP rows."""
    array_mib: int = 10
    """Each of ten arrays in the Dask rows."""
    idle: int = 10_000
    """Idle connections beside the busy ones."""
    threads: int = 500

    @classmethod
    def quick(cls) -> Plan:
        return cls(rounds=1, slices=3, seconds=0.05, mib=8, array_mib=1, idle=500, threads=50)

    @property
    def sizes(self) -> dict[str, str]:
        """What words of a program may refer to."""
        names = ("mib", "array_mib", "idle", "threads")
        return {name: str(getattr(self, name)) for name in names}
