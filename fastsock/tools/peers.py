"""Finds the programs at the other ends of TCP connections in /proc, while the connections exist."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import attrs

from fastsock.advice import Peer
from fastsock.tools import introspection

__all__ = ["Peers"]

Ends = tuple[str, str]
"""Address and port of an end, and of the other end."""


@attrs.define
class Peers:
    """The programs found so far."""

    ends: dict[int, set[Ends]] = attrs.field(factory=dict)
    """Process -> its connections."""
    programs: dict[Ends, Peer] = attrs.field(factory=dict)
    users: dict[Ends, int] = attrs.field(factory=dict)
    """Whose the other end is."""
    sought: set[Ends] = attrs.field(factory=set)
    """Connections whose other end was sought in other network namespaces."""
    owners: dict[int, int] = attrs.field(factory=dict)
    """Inode of a socket -> its process."""

    def look(self, pids: Collection[int], processes: Iterable[introspection.Process] = ()) -> None:
        """Looks up the peers of the connections of `pids`. `processes` are the answers of processes with fastsock."""
        kernel = introspection.kernel_connections()
        inodes = {(known.local, known.peer): inode for inode, known in kernel.items()}
        opposite: dict[Ends, int] = {}
        for pid in pids:
            seen = self.ends.setdefault(pid, set())
            for inode in introspection.sockets(pid) & kernel.keys():
                ends = kernel[inode].local, kernel[inode].peer
                seen.add(ends)
                if (ends[1], ends[0]) not in inodes and ends not in self.sought:
                    self.sought.add(ends)
                    self._look_elsewhere(ends)
                if other := inodes.get((ends[1], ends[0])):  # 0: not accepted yet
                    opposite[ends] = other
                    self.users[ends] = kernel[other].user
        self._find_owners(opposite.values())
        told = [end for process in processes for end in process.connections if end.path == "tcp"]
        reasons = {(end.peer, end.local): end.reason for end in told}
        for ends, inode in opposite.items():
            known = self.programs.get(ends) or program(self.owners.get(inode))
            if known is not None:
                self.programs[ends] = attrs.evolve(known, reason=reasons.get(ends, known.reason))

    def note(self, local: str, peer: str, reason: str) -> None:
        """Records the reason that an end reported, for the connection of its peer."""
        known = self.programs.get((peer, local))
        if known is not None:
            self.programs[peer, local] = attrs.evolve(known, reason=reason)

    def of(self, local: str, peer: str) -> Peer | None:
        """Returns the program at the other end. If the connection was too short to be seen, returns the listening
        program."""
        found = self.programs.get((local, peer))
        if found is None and (inode := listener(peer)) is not None:
            self._find_owners([inode])
            found = program(self.owners.get(inode))
        return found

    def user_of(self, local: str, peer: str) -> str:
        """Returns the name of the user whose the other end is, or "" if it is this user, or unknown."""
        user = self.users.get((local, peer), os.geteuid())
        return "" if user == os.geteuid() else introspection.user_name(user)

    def _look_elsewhere(self, ends: Ends) -> None:
        """Looks for the other end in the other network namespaces of this host whose processes this user may see."""
        for pid in self._namespaces():
            for inode, known in introspection.kernel_connections(of=pid).items():
                if (known.peer, known.local) == ends:
                    self._find_owners([inode])
                    found = program(self.owners.get(inode))
                    if found is not None:
                        self.programs[ends] = attrs.evolve(found, elsewhere=True)
                    return

    def _namespaces(self) -> list[int]:
        """Returns a process of each other network namespace."""
        found: dict[str, int] = {}
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit():
                    found.setdefault(os.readlink(f"/proc/{name}/ns/net"), int(name))
        with suppress(OSError):
            found.pop(os.readlink("/proc/self/ns/net"), None)
        return list(found.values())

    def _find_owners(self, inodes: Iterable[int]) -> None:
        wanted = set(inodes) - self.owners.keys()
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) if wanted else ():
            for inode in introspection.sockets(pid) & wanted:
                self.owners.setdefault(inode, pid)


def listener(address: str) -> int | None:
    """Returns the inode of the socket that listens at this address, or at all addresses, or None."""
    _, _, port = address.rpartition(":")
    found = {known.local: inode for inode, known in introspection.kernel_connections(listening=True).items()}
    return next((found[at] for at in (address, f"0.0.0.0:{port}", f"[::]:{port}") if at in found), None)


def program(pid: int | None) -> Peer | None:
    """Returns the program of a process. Returns None if the process has ended or belongs to another user."""
    if pid is None:
        return None
    try:
        executable = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return None
    return Peer(
        pid=pid,
        command=introspection.command_of(pid),
        python=executable.startswith(("python", "pypy")) or "/libpython" in maps,
        fastsock=bool(introspection.has_fastsock(pid)),
    )
