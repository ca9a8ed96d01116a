"""Every differential test is bounded: one that blocks fails by itself and leaves the others to run."""

from collections.abc import Iterator

import pytest
from harness.pairs import KINDS, deadline


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(30):
        yield


@pytest.fixture
def own_settings() -> Iterator[None]:
    """What patch() is given stays in force; here not for longer than the test."""
    import fastsock

    with fastsock.configure():
        yield


@pytest.fixture
def patched(kind: str, own_settings: None) -> Iterator[None]:
    """The process is patched where one of the ends is fastsock's: only there is it seen that C code or
    another process takes a descriptor."""
    if kind == "kernel":
        yield
        return
    import fastsock

    fastsock.patch(**KINDS[kind].settings)
    try:
        yield
    finally:
        fastsock.unpatch()
