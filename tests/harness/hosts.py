"""Two network namespaces and a link between them: hosts, or containers on a bridge."""

import contextlib
import itertools
import os
from collections.abc import Iterator

import pytest

from harness.processes import ended

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
