"""What many tests start from: connected pairs of sockets, and a certificate."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.hostile_peer import Peer
    from harness.hosts import Container

pytest.register_assert_rewrite(
    "harness.pairs", "harness.processes", "conformance.aio.kit", "conformance.blocking.processes"
)

from harness.pairs import KINDS, Pair, deadline, make_pair, until  # noqa: E402 - after its registration
from harness.processes import MadeOnce, ended  # noqa: E402 - after its registration
from harness.scale import PATHS  # noqa: E402 - after its registration
from tiers import SECOND_TIER  # noqa: E402

for name in ("CI", "BUILD_NUMBER"):  # pytest would write out how megabytes differ, line by line, for minutes
    os.environ.pop(name, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else the programs under test would not hear it either


ROOT = Path(__file__).parents[1]
failures: dict[str, str] = {}
"""The tests that failed in this run, with their tracebacks."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whoever names no file asks for the first tier."""
    everything = [Path(config.rootpath, argument) for argument in config.args] == [ROOT / "tests"]
    return True if everything and str(collection_path.relative_to(ROOT)) in SECOND_TIER else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures.setdefault(report.nodeid, report.longreprtext)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For `./dev test`: repeats which checks failed, and which tests failed once and then passed alone. The summary is
    often all that somebody sees of a long run."""
    if failed_once := os.environ.get("FAILED_ONCE"):
        Path(failed_once).write_text(json.dumps(failures))
    if failed_before := os.environ.get("FAILED_BEFORE"):
        before = json.loads(Path(failed_before).read_text())
        passed = {report.nodeid for report in terminalreporter.getreports("passed")}
        for test in sorted(before.keys() & passed):
            terminalreporter.section(f"unsteady: {test}")
            terminalreporter.write_line("It failed among the others, as below, and passed alone.")
            terminalreporter.write_line(before[test])
    path = Path(os.environ.get("FAILED_CHECKS", os.devnull))
    if path.exists() and (failed := path.read_text(errors="replace")):
        terminalreporter.section("checks that failed before these tests")
        terminalreporter.write(failed)


@pytest.fixture(autouse=True)
def default_settings_afterwards() -> Iterator[None]:
    """Whatever settings a test puts in force, by `patch()` too, the next one begins with the defaults."""
    yield
    if config := sys.modules.get("fastsock.config"):
        config.use(config.from_environment())


@pytest.fixture
def bounded() -> Iterator[None]:
    """Most modules name it in their ``pytestmark``; one whose tests take longer, or are quick, has its own."""
    with deadline(50):
        yield


@pytest.fixture
def without_spare_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of rings whose limit is the window's."""
    import fastsock  # only where it is needed: see pairs

    monkeypatch.setenv("FASTSOCK__COMBINE_WHEN_FULL", "0")
    with fastsock.configure(_combine_when_full=False):
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
def family() -> int | None:
    """The address family of ``pair``; a test overrides it by a parameter of this name."""
    return None


@pytest.fixture
def pair(kind: str, family: int | None) -> Iterator[Pair]:
    """A connected pair, in blocking mode; unpacks to the near end and the far end."""
    with make_pair(kind, family) as pair:
        yield pair


@pytest.fixture
def reference() -> Iterator[Pair]:
    """A second pair, always plain kernel TCP: what it does is right by definition."""
    with make_pair("kernel") as pair:
        yield pair


@pytest.fixture(params=[False, True], ids=["seeker", "publisher"])
def publishes(request: pytest.FixtureRequest) -> bool:
    """Which part a hostile peer has in the rendezvous, and so which half of the region is its own."""
    return bool(request.param)


@pytest.fixture
def peer(publishes: bool, caplog: pytest.LogCaptureFixture) -> Iterator["Peer"]:
    """A hostile peer of a connection with both directions on the ring: the victim has sent descriptor 0, and has taken
    ours. Nothing is left of it afterwards."""
    from harness.hostile_peer import holdings, holdings_at_rest, on_ring

    caplog.set_level("INFO", "fastsock")
    before = holdings_at_rest()
    with on_ring(publishes) as peer:
        yield peer
    until(lambda: holdings() == before, "nothing is left behind")


@pytest.fixture
def healthy() -> Iterator[Pair]:
    """A connection on the ring in this process, that goes on whatever becomes of a hostile peer's."""
    with make_pair("ring") as pair:
        yield pair
        for sender, receiver in (pair, reversed(tuple(pair))):
            sender.sendall(b"healthy")
            assert receiver.recv(7) == b"healthy"
        pair.check_path()


@pytest.fixture(scope="module")
def three() -> Iterator[list["Container"]]:
    """Three containers on a bridge."""
    from harness.hosts import containers

    with containers(3) as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """For `rendezvous_dir`. (The name of a socket has to fit behind its path.)"""
    with tempfile.TemporaryDirectory(prefix="fs-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)  # (in containers other users look there)
        yield Path(made)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Gives a folder of this name, which the first of the processes that share the tests makes, while the others
    wait for it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = base / "once" / name, base / "once" / f"{name}.done"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def release(made_once: MadeOnce) -> Path:
    """The core as a library, of a build as it is released."""

    def make(folder: Path) -> None:
        assert ended([ROOT / "core/compile", folder, "-O1"]).stderr == ""

    return made_once("release", make) / "libfastsock.a"


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
