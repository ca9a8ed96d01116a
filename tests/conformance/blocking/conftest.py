"""Every differential test is bounded: one that blocks fails by itself and leaves the others to run."""

from collections.abc import Iterator

import pytest
from harness.pairs import deadline


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(30):
        yield
