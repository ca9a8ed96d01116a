"""Fixtures for every test that runs on a connected pair of sockets."""

import socket
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("pairs", "differential.processes", "programs.launch")

from pairs import KINDS, Pair, make_pair  # noqa: E402 - after its registration


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a kind of pair: a test that takes it, or ``pair``, runs once per kind."""
    return request.param


@pytest.fixture
def family() -> int:
    """The address family of ``pair``; a test overrides it by a parameter of this name."""
    return socket.AF_INET


@pytest.fixture
def pair(kind: str, family: int) -> Iterator[Pair]:
    """A connected pair, in blocking mode; unpacks to the near end and the far end."""
    with make_pair(kind, family) as pair:
        yield pair


@pytest.fixture
def reference() -> Iterator[Pair]:
    """A second pair, always plain kernel TCP: what it does is right by definition."""
    with make_pair("kernel") as pair:
        yield pair
