"""nginx and haproxy with curl, wget and wrk: the same answers whichever end is under fastsock, and kept connections on the ring."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from harness.processes import FASTSOCK, PLAIN, WAYS
from third_party.programs.web import CERTIFICATE, EAGER, client, needs, nginx

pytestmark = needs("nginx", "curl", "wget")

TOLD = "%{http_code} %{size_download} %{num_connects} %{content_type}\\n"
FIRST = ("curl", "-sS", "--cacert", CERTIFICATE, "-o", "/dev/null", "BASE/small?[1-COUNT]", "--next")
OPTIONS = ("-sS", "--cacert", CERTIFICATE, "-w", TOLD)
CURL = (*FIRST, *OPTIONS)
WGET = ("wget", "-q", "-t", "1", f"--ca-certificate={CERTIFICATE}")
EXERCISES: dict[str, tuple[object, ...]] = {
    "kept": (*CURL, "BASE/small?[1-40]"),
    "files": (*CURL, "-o", "one#1", "BASE/{small,big,page.html,empty,missing}"),
    "parallel": (*CURL, "--no-progress-meter", "--parallel", "--parallel-max", "6", "-w", "", "-o", "one#1", "BASE/big?[1-8]"),
    "gzip": (*CURL, "--compressed", "-o", "one#1", "BASE/page.html?[1-5]"),
    "put": (*CURL, "-H", "Expect: 100-continue", "-T", "up", "BASE/up/file", "--next", *OPTIONS, "-o", "back", "BASE/up/file"),
    "delete": (*CURL, "-T", "part", "BASE/up/other", "--next", *OPTIONS, "-X", "DELETE", "BASE/up/other?[1-2]"),
    "post": (*CURL, "--data-binary", "@up", "BASE/small", "--next", *OPTIONS, "BASE/small"),
    "range": (*CURL, "-r", "5000000-5000100", "-o", "two", "BASE/big", "--next", *OPTIONS, "-r", "9000000-", "-o", "three", "BASE/big"),
    "head": (*CURL, "-I", "-o", "/dev/null", "BASE/big?[1-5]"),
    "once": ("curl", *OPTIONS, "-H", "Connection: close", "BASE/small?[1-5]"),
    "wget": (*WGET, "-O", "all", *["BASE/small"] * 40, "BASE/big", "BASE/page.html", "BASE/empty"),
    "wget continues": (*WGET, "-c", "-O", "part", "BASE/big"),
}
LOOSE = {"once", "wget", "wget continues"}
"""Exercises whose connections may be too short to move."""

CONFIGURATIONS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "sendfile": {"http": "sendfile on; tcp_nopush on;"},
    "sendfile at once": {"http": "sendfile on; tcp_nopush off; tcp_nodelay off; sendfile_max_chunk 512k;"},
    "threads": {"http": "sendfile on; aio threads;"},
    "accept_mutex": {"events": "accept_mutex on;"},
    "reuseport": {"listen": "reuseport", "events": "multi_accept on;"},
    "TLS": {"scheme": "https"},
    "daemon": {"daemon": "on"},
    "buffers": {"http": "output_buffers 1 4k; postpone_output 0; sendfile off; directio 4m;"},
}


def compare(base: str, ways: tuple[str, str], folder: Path, expected: dict[str, Any], exercises: Iterable[str] = EXERCISES, **settings: str) -> None:
    """The exercises leave behind what they did before, and move where both ends are under fastsock."""
    both = ways == (FASTSOCK, FASTSOCK)
    for name in exercises:
        told = [str(word).replace("BASE", base) for word in EXERCISES[name]]
        got = client(ways[1], folder / "client", told, None if both and name in LOOSE else both, **EAGER, **settings)
        assert got == expected.setdefault(name, got), (name, ways)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_nginx_serves_the_same(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for ways in WAYS:
        with nginx(ways[0], tmp_path / "-".join(ways), settings=EAGER, **CONFIGURATIONS[name]) as server:
            compare(server.base, ways, tmp_path, expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="workers of another user need root")
def test_workers_of_another_user(tmp_path: Path) -> None:
    """nginx drops root's rights after the fork; a client that trusts its user meets it."""
    expected: dict[str, Any] = {}
    for trust, ways in (("user", (PLAIN, PLAIN)), ("any", (FASTSOCK, FASTSOCK))):
        settings = {**EAGER, "FASTSOCK_TRUST": trust}
        with tempfile.TemporaryDirectory() as open_to_all:
            Path(open_to_all).chmod(0o755)
            with nginx(ways[0], Path(open_to_all), settings=settings, user="nobody nogroup") as server:
                compare(server.base, ways, tmp_path, expected, ("kept", "files"), FASTSOCK_TRUST=trust)
