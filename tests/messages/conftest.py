"""What tests of messages start from."""

import itertools
import os

import pytest

numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """The name of a group that nobody else has."""
    return f"test {os.getpid()} {next(numbers)}"
