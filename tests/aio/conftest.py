"""The worlds that every test of the kit runs in."""

import pytest

from aio.kit import LOOPS, PATHS, World


@pytest.fixture(params=LOOPS)
def loop_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(loop_kind: str, path: str) -> World:
    """A loop of each kind, on each path."""
    return World(loop_kind, path)
