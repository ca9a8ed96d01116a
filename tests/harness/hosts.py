"""Network namespaces and what connects them: two hosts with a link, or containers on a bridge."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from harness.pairs import until
from harness.processes import Process, ended

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

    def command(self, *words: object, alone: bool = True) -> list[str]:
        """A command line in it. `alone`: with mounts, process ids and names of its own, as a container has them."""
        own = (
            ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"] if alone else []
        )
        return [str(word) for word in (*self.enters, *own, *words)]

    @property
    def within(self) -> list[str]:
        return self.command()


def child_of(process: Process) -> int:
    """The process that `unshare --fork` has made, once it is another program: before, its users have no numbers yet."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def begun() -> int:
        assert process.process.poll() is None
        child = children.read_text().split()
        return int(child[0]) if child and Path(f"/proc/{child[0]}/comm").read_text() == "sleep\n" else 0

    return int(until(begun, "it has begun"))


@contextlib.contextmanager
def containers(count: int) -> Iterator[list[Container]]:
    """So many of them, made without privileges. Skips the test, with the reason, where namespaces are not permitted."""
    new = ["unshare", "--net", "--fork", "--kill-child"]
    tried = ended([*new, "--user", "--map-root-user", "ip", "link", "add", "name", "br0", "type", "bridge"], None)
    if tried.returncode:
        pytest.skip(f"no user and network namespaces here: {tried.stderr.strip()}")
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(Process([*new, "--user", "--map-root-user", "sleep", "infinity"]))

        def enters(process: Process) -> list[str]:
            return ["nsenter", "--target", str(child_of(process)), "--user", "--net", "--preserve-credentials"]

        def settles(where: list[str], words: str) -> None:
            ended([*where, "ip", *words.split()])

        made, at_bridge = [], enters(hub)
        settles(at_bridge, "link add name br0 type bridge")
        settles(at_bridge, "link set br0 up")
        for number in range(1, count + 1):
            space = stack.enter_context(Process([*at_bridge, *new, "sleep", "infinity"]))
            address = f"10.99.0.{number + 1}"
            settles(at_bridge, f"link add v{number} type veth peer name eth0 netns {child_of(space)}")
            settles(at_bridge, f"link set v{number} master br0 up")
            for words in (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
                settles(enters(space), words)
            made.append(Container(address, enters(space)))
        yield made
