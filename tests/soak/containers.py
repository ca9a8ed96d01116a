"""Two containers on a bridge, for the servers of a run and for its clients: networks, processes, mounts and IPC of
their own, and one folder that both see. Only root makes them.

A container that is restarted keeps its network, as in a pod: its processes are killed all at once, and those that come
have the same address and new process ids."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
CLONE_FS, SPACES = 0x200, 0x40000000 | 0x20000000 | 0x08000000 | 0x00020000  # CLONE_NEWNET, NEWPID, NEWIPC, NEWNS
_libc = ctypes.CDLL(None, use_errno=True)


def _call(failed: int, what: str) -> None:
    if failed:
        raise OSError(ctypes.get_errno(), what)


def _told(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, timeout=30)


class _Space:
    """The first process of new namespaces, made by `unshare` within those of `within`; they end with it."""

    def __init__(self, kinds: list[str], within: list[str] | None = None) -> None:
        ends_with_us = ["setpriv", "--pdeathsig", "KILL"]
        words = [*(within or []), *ends_with_us, "unshare", *kinds, "--fork", "--kill-child", "sleep", "infinity"]
        # (It has a word for each signal number that there is not.)
        self.outer = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        until = time.monotonic() + 20
        while True:
            found = children.read_text().split()
            if found and Path(f"/proc/{found[0]}/comm").read_text() == "sleep\n":
                self.first = int(found[0])
                return
            if self.outer.poll() is not None or time.monotonic() > until:
                raise OSError(f"no namespaces: {words}")
            time.sleep(0.005)

    def enters(self) -> list[str]:
        return ["nsenter", "--net", "--target", str(self.first)]

    def end(self) -> None:
        """Kills all that is in it, and returns when it has ended."""
        if self.outer.poll() is None:
            os.kill(self.first, signal.SIGKILL)
            self.outer.wait()


class Container:
    def __init__(self, hub: _Space, number: int) -> None:
        self.address = f"10.98.0.{number + 1}"
        self.network = _Space(["--net"])
        veth = f"v{number}"
        _told(
            *hub.enters(),
            "ip",
            "link",
            "add",
            veth,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.network.first,
        )
        _told(*hub.enters(), "ip", "link", "set", veth, "master", "br0", "up")
        for words in (f"addr add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _told(*self.network.enters(), "ip", *words.split())
        self._begin()

    def _begin(self) -> None:
        self.processes = _Space(["--pid", "--mount", "--ipc", "--uts", "--mount-proc"], self.network.enters())

    def restart(self, mourn: Callable[[], object]) -> None:
        """`mourn` waits for the processes that were started here: before, the first one does not end."""
        os.kill(self.processes.first, signal.SIGKILL)
        mourn()
        self.processes.outer.wait()
        self._begin()

    def start(self, starts: Callable[[], Result]) -> Result:
        """Calls it in a thread that belongs to the container, so that the process that it starts does, too."""
        made: list[Any] = []

        def enter() -> None:
            pidfd = os.pidfd_open(self.processes.first)
            try:
                _call(_libc.unshare(CLONE_FS), "unshare")
                _call(_libc.setns(pidfd, SPACES), "setns")
                made.append(starts())
            except BaseException as error:  # for the caller
                made.append(error)
            finally:
                os.close(pidfd)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if isinstance(made[0], BaseException):
            raise made[0]
        result: Result = made[0]
        return result

    def names(self) -> list[str]:
        """Names of fastsock's in its network."""
        lines = Path(f"/proc/{self.network.first}/net/unix").read_text().splitlines()
        return [line.split()[-1] for line in lines if "@fastsock" in line]


def is_heard(name: str) -> bool:
    """Whether a process listens at a name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(name) != errno.ECONNREFUSED


class Bridge:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="fs-")
        os.chmod(self.folder.name, 0o1777)
        self.hub = _Space(["--net"])
        for words in ("link add name br0 type bridge", "link set br0 up"):
            _told(*self.hub.enters(), "ip", *words.split())
        self.containers = {"server": Container(self.hub, 1), "client": Container(self.hub, 2)}
        # (root in one container is not root in the other: `user` would not do.)
        self.variables = {"FASTSOCK_RENDEZVOUS_DIR": self.folder.name, "FASTSOCK_TRUST": "any"}

    def left(self) -> list[str]:
        """Names that are still there. (What the last processes left that were killed, the next ones sweep.)"""
        names = [f"{self.folder.name}/{name}" for name in os.listdir(self.folder.name)]
        return [name for name in names if is_heard(name)] + [
            name for container in self.containers.values() for name in container.names()
        ]

    def close(self) -> None:
        for container in self.containers.values():
            container.processes.end()
            container.network.end()
        self.hub.end()
        self.folder.cleanup()
