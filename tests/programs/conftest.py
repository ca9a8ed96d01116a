"""Bounds every test of a program: one that blocks fails by itself and leaves the others to run."""

from collections.abc import Iterator

import pytest
from pairs import deadline


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(55):
        yield
