"""The quick part of CPython's own tests under eager settings, and that the runner itself notices what it should."""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from . import __main__ as stdlib
from .environment import throw_away
from .interpreter import run_suite
from .suites import SUITES, Suite, exceptions

CHECKOUT = Path(__file__).parents[3]


@pytest.mark.stdlib
@pytest.mark.parametrize("suite", [suite.name for suite in SUITES.values() if suite.quick])
def test_as_without_fastsock(suite: str) -> None:
    command = [sys.executable, "-m", "tests.third_party.stdlib", "--quick", "--mode", "eager", "--suite", suite]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


BROKEN = """\
import os, socket, time, unittest

class Tests(unittest.TestCase):
    def test_fails(self):
        self.fail()

    def test_hangs(self):
        time.sleep(60)

    def test_dies(self):
        os._exit(3)

    def test_passes(self):
        pass

    def test_vsock_VSOCK(self):
        time.sleep(60)

    def test_subtest(self):
        with self.subTest(number=1):
            self.fail()

    def test_skips(self):
        self.skipTest("why")
"""


def test_every_outcome_is_noticed(tmp_path: Path) -> None:
    """A hang and a death are outcomes with tracebacks, and the tests behind them run."""
    with throw_away(None) as environment:
        package = next(environment.python.parents[1].glob("lib/python*/site-packages"))
        (package / "broken.pth").write_text(f"import test; test.__path__.append({str(tmp_path)!r})\n")
        (tmp_path / "test_broken.py").write_text(BROKEN)
        run = run_suite(environment, "test_broken", "network", seconds=2)
    prefix = "test.test_broken.Tests.test_"
    assert {test.removeprefix(prefix): outcome.what for test, outcome in run.outcomes.items()} == {
        "dies": "died", "fails": "failed", "hangs": "hung", "passes": "ok", "skips": "skipped", "subtest": "failed",
    }  # fmt: skip
    assert "in test_hangs" in run.outcomes[f"{prefix}hangs"].why
    assert "exit status 3" in run.outcomes[f"{prefix}dies"].why


def test_a_module_that_is_not_there() -> None:
    with throw_away(None) as environment:
        run = run_suite(environment, "test_not_there", "network")
    assert [outcome.what for outcome in run.outcomes.values()] == ["absent"]


@pytest.mark.parametrize("others", [False, True])
def test_a_suite_of_which_nothing_runs_is_a_failure(
    others: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named; also where others ran."""
    suites = [Suite("test_not_there", quick="*"), *([Suite("test_select", ring=False, quick="*")] if others else [])]
    monkeypatch.setattr(stdlib, "SUITES", {suite.name: suite for suite in suites})
    monkeypatch.setattr(sys, "argv", ["stdlib", "--quick", "--mode", "eager"])
    assert stdlib.main() == 1
    said = capsys.readouterr().out
    assert ("test_select eager: " in said) == others
    assert said.splitlines()[-2:] == ["NOT RUN: test_not_there (this Python may come without it)", "FAILED"]


CHILD = """\
import socket
import fastsock
assert fastsock.is_patched()
with socket.create_server(("127.0.0.1", 0)) as listener:
    near = socket.create_connection(listener.getsockname())
    far = listener.accept()[0]
    import fastsock
    while [fastsock.path_of(sock).path for sock in (near, far)] != ["ring", "ring"]:
        near.sendall(b"x")
        far.sendall(far.recv(1))
        near.recv(1)
near.close(), far.close()
"""


def test_children_are_patched_and_counted() -> None:
    """Isolated, and with an empty environment."""
    with throw_away({"move_after": 0}) as environment:
        ended = subprocess.run([environment.python, "-I", "-c", CHILD], env={}, timeout=30, check=False)
        assert ended.returncode == 0
        assert environment.ring_connections() == 2
    with throw_away(None) as environment:
        ended = subprocess.run([environment.python, "-c", CHILD], stderr=subprocess.DEVNULL, timeout=30, check=False)
        assert ended.returncode == 1


def test_exceptions_are_complete(tmp_path: Path) -> None:
    known = exceptions()
    assert all(entry.reason and entry.since <= datetime.date.today() for entry in known.values())
    (tmp_path / "file").write_text("test.x | because\n")
    with pytest.raises(ValueError, match="not enough values"):
        exceptions(tmp_path / "file")
