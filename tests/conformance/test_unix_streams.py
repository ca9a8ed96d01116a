"""The bodies of the tests of blocking sockets and of transports, on stream sockets of AF_UNIX, in processes of their
own: what one says of the kernel's stream, it says of the ring."""

import collections
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.pairs import KINDS

HERE = Path(__file__).parent
BLOCKING = ["close", "shutdown", "ended_unread", "flags", "readiness", "peer_process", "stream", "descriptors", "fork"]
AIO = ["transport", "protocols"]
SHARED = ["ended_unread", "shutdown", "stream", "descriptors", "fork"]
"""Of these the bodies run on a socketpair too, which a fork has shared."""
OTHERS = (
    "test_waitall_with_peek",  # the kernel's unix stream returns what is there when it looks: by chance all of it
    "test_a_written_bytearray",  # uvloop keeps a view of what the kernel has no room for, of TCP more than the test has
)
"""What differs, and may."""
HANGS = 60
"""Seconds after which a body of the inner session is a hang: its stacks are printed, and the session ends."""
KIND = re.compile(rf"\b({'|'.join(sorted(KINDS, key=len, reverse=True))})\b")


@pytest.mark.parametrize(
    ("streams", "folder", "file"),
    [
        *(("unix", "blocking", file) for file in BLOCKING),
        *(("unix", "aio", file) for file in AIO),
        *(("pair", "blocking", file) for file in SHARED),
    ],
)
def test_the_bodies_for_tcp(streams: str, folder: str, file: str) -> None:
    """Each test says of every kind what it says of the kernel's own stream; some of them are about TCP alone."""
    options = ["-qrA", "--tb=no", f"--timeout={HANGS}", "-k", f"not ({' or '.join(OTHERS)})"]
    without = [word for plugin in ("randomly", "xdist", "cacheprovider") for word in ("-p", f"no:{plugin}")]
    # (Not this session's files of what failed.)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FAILED_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *without, str(HERE / folder / f"test_{file}.py")],
        env=variables | {"TEST_STREAMS": streams},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,  # some bodies are about TCP alone
    )
    assert "+ Timeout +" not in run.stdout, run.stdout
    results: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for result, test in re.findall(r"^(PASSED|FAILED|ERROR) (\S+::[^\n]*?)(?: - .*)?$", run.stdout, re.MULTILINE):
        kind = KIND.search(test.partition("[")[2])
        results[KIND.sub("*", test) if kind else test][kind.group() if kind else ""] = result
    assert sum(result == "PASSED" for by_kind in results.values() for result in by_kind.values()) > 10, run.stdout
    assert {test: by_kind for test, by_kind in results.items() if len(set(by_kind.values())) > 1} == {}
    assert [test for test, by_kind in results.items() if "kernel" not in by_kind and "FAILED" in by_kind.values()] == []
