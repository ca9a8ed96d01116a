"""What many tests start from: connected pairs of sockets, and a certificate."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("pairs", "differential.processes", "programs.launch")

from crowd import PATHS  # noqa: E402 - after its registration
from pairs import KINDS, Pair, deadline, make_pair  # noqa: E402 - after its registration

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else the programs under test would not hear it either


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Repeats what `./dev test` found before pytest: the summary is often all that somebody sees of a long run."""
    path = os.environ.get("FAILED_CHECKS")
    if path and (failures := Path(path).read_text(errors="replace")):
        terminalreporter.section("checks that failed before these tests")
        terminalreporter.write(failures)


@pytest.fixture
def bounded() -> Iterator[None]:
    """Most modules name it in their ``pytestmark``; one whose tests take longer, or are quick, has its own."""
    with deadline(50):
        yield


@pytest.fixture
def without_spare_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With them the ring takes as much as TCP, and nobody has to go on in the kernel."""
    import fastsock  # only where it is needed: see pairs

    monkeypatch.setenv("FASTSOCK_COMBINE_WHEN_FULL", "0")
    with fastsock.configure(combine_when_full=False):
        yield


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    """A program of a crowd, plain or under fastsock."""
    return request.param


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a kind of pair: a test that takes it, or ``pair``, runs once per kind. A module whose tests are of
    one kind overrides it."""
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


@pytest.fixture
def healthy() -> Iterator[Pair]:
    """A connection on the ring in this process, that goes on whatever becomes of a hostile peer's."""
    with make_pair("ring") as pair:
        yield pair
        for sender, receiver in (pair, reversed(tuple(pair))):
            sender.sendall(b"healthy")
            assert receiver.recv(7) == b"healthy"
        pair.check_path()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself, and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    both = ["-keyout", str(path), "-out", str(path.with_suffix(".crt"))]
    subprocess.run(["openssl", *request.split(), *names, *both], check=True, capture_output=True, timeout=30)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path
