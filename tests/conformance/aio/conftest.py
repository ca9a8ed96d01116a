"""The worlds that every test of the kit runs in."""

import ssl
from pathlib import Path

import pytest

from conformance.aio.kit import LOOPS, PATHS, Contexts, World


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


@pytest.fixture
def contexts(certificate: Path) -> Contexts:
    """For TLS: the server's, and the client's."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=str(certificate))
