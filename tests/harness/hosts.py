"""Network namespaces and what connects them: two hosts with a link, or containers on a bridge."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from harness.pairs import until
from harness.processes import ROOT, Process, ended

NUMBERS = itertools.count(1)
"""Namespaces go with the last process in them, which may be later than their names."""


@contextlib.contextmanager
def two_hosts() -> Iterator[list[tuple[str, str]]]:
    """Their names and addresses. Skips the test, with the reason, where namespaces are not permitted."""
    names = [f"fastsock-{os.getpid()}-{next(NUMBERS)}" for _ in range(2)]
    with contextlib.ExitStack() as stack:
        for name in names:
            made = ended(["ip", "netns", "add", name], None)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(ended, ["ip", "netns", "del", name], None)
        ended(["ip", "link", "add", "v1", "netns", names[0], "type", "veth", "peer", "name", "v2", "netns", names[1]])
        for number, name in enumerate(names, 1):
            for words in (("addr", "add", f"10.77.0.{number}/24", "dev", f"v{number}"),
                          ("link", "set", "lo", "up"), ("link", "set", f"v{number}", "up")):  # fmt: skip
                ended(["ip", "-n", name, *words])
        yield [(name, f"10.77.0.{number}") for number, name in enumerate(names, 1)]


# ---- containers --------------------------------------------------------------------------------------------------


@attrs.frozen
class Container:
    """A network namespace on the bridge, in a user namespace in which this user may do what root may."""

    address: str
    enters: list[str]
    again: Callable[[], Container]
    """Ends it, and makes one with its address, as a runtime does that starts a container again."""

    def command(self, *words: object, alone: bool = True) -> list[str]:
        """A command line in it. `alone`: with mounts, process ids and names of its own, as a container has them."""
        own = (
            ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"] if alone else []
        )
        return [str(word) for word in (*self.enters, *own, *words)]

    @property
    def within(self) -> list[str]:
        return self.command()


OWN_ROOT = """
set -e
here=$1 etc=$2; shift 2
mount -t tmpfs -o mode=755 none "$here"
for path in /*; do
    into=$here$path
    if [ -L "$path" ]; then cp -P "$path" "$into"
    elif [ -d "$path" ]; then
        mkdir "$into"
        case $(stat -c %A "$path") in *[xt]) [ "$path" = /proc ] || mount --rbind "$path" "$into"; esac
    fi
done
while [ "$1" != -- ]; do
    mkdir -p "$here$2"
    [ "$3" = lacks ] && [ "$(ls -A "$here$2")" ] || mount --rbind "$1" "$here$2"
    [ "$3" != ro ] || mount -o remount,bind,ro "$here$2"
    shift 3
done
shift
mount -t proc none "$here/proc"
mount -t tmpfs none "$here/dev/shm"
for file in "$etc"/*; do mount --bind "$file" "$here/etc/${file##*/}"; done
exec chroot "$here" "$@"
"""
"""Starts a program in a root directory of its own: that of the machine, but for what a container has for itself, and
without what stands where other users may not look."""


class Images:
    """What containers are started with: see `confined.c`."""

    def __init__(self, folder: Path) -> None:
        self.etc, self.confined = folder / "etc", folder / "confined"
        self.etc.mkdir()
        (self.etc / "passwd").write_text(
            "root:x:0:0::/:/bin/sh\nimage:x:999:999::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"
        )
        source = ROOT / "tests/harness/confined.c"
        words = [os.environ.get("CC", "cc"), "-D_GNU_SOURCE", "-Wall", "-Werror", source, "-o", self.confined]
        built = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
        if built.returncode:
            pytest.skip(f"no filter of system calls for this machine: {built.stderr}")
        self.place = Path("/mnt")

    def starts(
        self, where: Container, user: int, words: Sequence[object], volumes: Mapping[str, tuple[Path, bool]]
    ) -> list[str]:
        """A command line that starts a program as a container's first process, as a user without privileges. `volumes`:
        from where in the container to a folder here, and whether it may be written to."""
        binds: list[object] = []
        for path in {sys.base_prefix, sys.prefix, ROOT}:
            binds += [path, path, "lacks"]
        for path, (folder, writable) in volumes.items():
            binds += [folder, path, "rw" if writable else "ro"]
        root = ["sh", "-c", OWN_ROOT, "sh", self.place, self.etc, *binds, "--", self.confined, user]
        return where.command(*root, *words)


@contextlib.contextmanager
def images() -> Iterator[Images]:
    """Skips the test where the machine's user is not root: only root gives containers users."""
    if os.geteuid() != 0:
        pytest.skip("only root makes containers with users of their own")
    with tempfile.TemporaryDirectory(prefix="fs-") as folder:
        Path(folder).chmod(0o755)
        yield Images(Path(folder))


def child_of(process: Process) -> int:
    """The process that `unshare --fork` has made, once it is another program: before, its users have no numbers yet."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def begun() -> int:
        assert process.process.poll() is None
        child = children.read_text().split()
        return int(child[0]) if child and Path(f"/proc/{child[0]}/comm").read_text() == "sleep\n" else 0

    return int(until(begun, "it has begun"))


def give_users(process: Process, within: list[str]) -> None:
    """Gives a user namespace the numbers of all users of the one around it, from within that."""
    for kind in ("uid_map", "gid_map"):
        ended([*within, "sh", "-c", f"echo 0 0 65536 > /proc/{child_of(process)}/{kind}"])


@contextlib.contextmanager
def containers(count: int, users: bool = False) -> Iterator[list[Container]]:
    """So many of them, made without privileges. Skips the test, with the reason, where namespaces are not permitted.
    `users`: each has a user namespace of its own, with all users, which only root can give it."""
    new = ["unshare", "--net", "--fork", "--kill-child"]
    tried = ended([*new, "--user", "--map-root-user", "ip", "link", "add", "name", "br0", "type", "bridge"], None)
    if tried.returncode:
        pytest.skip(f"no user and network namespaces here: {tried.stderr.strip()}")
    with contextlib.ExitStack() as stack:
        mapped, own_users = ([], ["--user"]) if users else (["--map-root-user"], [])
        hub = stack.enter_context(Process([*new, "--user", *mapped, "sleep", "infinity"]))
        if users:
            give_users(hub, [])

        def enters(process: Process) -> list[str]:
            return ["nsenter", "--target", str(child_of(process)), "--user", "--net", "--preserve-credentials"]

        def settles(where: list[str], words: str) -> None:
            ended([*where, "ip", *words.split()])

        at_bridge = enters(hub)
        settles(at_bridge, "link add name br0 type bridge")
        settles(at_bridge, "link set br0 up")

        def make(number: int) -> Container:
            space = stack.enter_context(Process([*at_bridge, *new, *own_users, "sleep", "infinity"]))
            if users:
                give_users(space, at_bridge)
            address, there = f"10.99.0.{number + 1}", enters(space)
            # (A container that comes again has the hardware address that the others know.)
            own = f"address 02:42:0a:63:00:{number + 1:02x} netns {child_of(space)}"
            settles(at_bridge, f"link add v{number} type veth peer name eth0 {own}")
            settles(at_bridge, f"link set v{number} master br0 up")
            for words in (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
                settles(there, words)

            def again() -> Container:
                space.close()
                until(
                    lambda: ended([*at_bridge, "ip", "link", "show", f"v{number}"], None).returncode, "its end is gone"
                )
                return make(number)

            return Container(address, there, again)

        yield [make(number) for number in range(1, count + 1)]
