"""Programs that are not Python, plain or under the library."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, ended
from interpose.test_interpose import RUN


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips tests where one of these is not installed."""
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def under(way: str, words: Sequence[object], stats: object = None, *options: str) -> list[str]:
    """A program's words as they are, or under `fastsock run`."""
    told = ["--stats", stats] if stats else []
    return [str(word) for word in ([*RUN, *options, *told, *words] if way == FASTSOCK else words)]


@dataclass(frozen=True)
class Answer:
    """What a client said and did."""

    output: str
    errors: str
    status: int
    ring: int
    """Connections that moved; 0 of a plain client."""

    def seen(self) -> tuple[str, str, int]:
        """What a user sees."""
        return self.output, self.errors, self.status


def client(
    way: str, folder: Path, words: Sequence[object], given: str = "", options: Sequence[str] = (), **variables: str
) -> Answer:
    """A client that ran to its end, with whatever status."""
    stats = folder / "client-stats.json"
    stats.unlink(missing_ok=True)
    done = ended(under(way, words, stats, *options), None, given, folder, **variables)
    ring = json.loads(stats.read_text())["connections_ring"] if stats.exists() else 0
    return Answer(done.stdout, done.stderr, done.returncode, ring)


def ordinary_user() -> list[str]:
    """The command below which a program is not root, though its files and its connections are this user's.
    Skips the test where that is not possible."""
    if os.geteuid() != 0:
        return []
    words = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if not shutil.which("unshare") or ended([*words, "true"], None).returncode:
        pytest.skip("it does not run as root, and user namespaces are not allowed")
    return words
