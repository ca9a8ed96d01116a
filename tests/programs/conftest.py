"""Fixtures shared by the tests of this package."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pairs import deadline


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with deadline(55):
        yield


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself, and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    key = path.with_suffix(".key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(key), "-out", str(path)],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path
