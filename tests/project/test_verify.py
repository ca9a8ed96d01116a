"""The two tiers (tiers.py, verify.py): every part runs something that is there, and a change finds its parts."""

import fnmatch
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import ended
from tiers import PARTS, SECOND_TIER

ROOT = Path(__file__).parents[2]
FILES = ended(["git", "ls-files", "--cached", "--others", "--exclude-standard"], None).stdout.splitlines()


def verify(*words: str) -> subprocess.CompletedProcess[str]:
    return ended([sys.executable, "-m", "tests.verify", *words], None)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_runs_what_is_there(name: str) -> None:
    part = PARTS[name]
    assert bool(part.runs) != bool(part.tests)
    assert all((ROOT / path).exists() for path in part.tests)
    assert part.runs[:1] in ((), ("python",)) or (ROOT / part.runs[0]).is_file()


@pytest.mark.skipif(not FILES, reason="no checkout of git")
@pytest.mark.parametrize("name", PARTS)
def test_what_can_touch_a_part_is_there(name: str) -> None:
    assert all(fnmatch.filter(FILES, pattern) for pattern in PARTS[name].files)


def test_no_test_is_in_two_parts() -> None:
    assert len(set(SECOND_TIER)) == len(SECOND_TIER)


def test_parts_are_listed_and_a_wrong_name_is_told() -> None:
    assert [line.split()[0] for line in verify("--list", "models", "wheels").stdout.splitlines()] == [
        "models",
        "wheels",
    ]
    done = verify("modles")
    assert (done.returncode, done.stderr.splitlines()[-1].partition("(")[0]) == (
        2,
        "./dev verify: error: no such part: modles ",
    )


FAILS_ONCE = """\
import pathlib
def test_fails_once():
    mark = pathlib.Path(__file__).with_suffix(".mark")
    first = not mark.exists()
    mark.touch()
    assert not first, "the first time"
def test_passes():
    pass
"""


def test_what_fails_once_is_told_as_unsteady_with_its_first_traceback(tmp_path: Path) -> None:
    """As `tests` of ./dev runs it: the second run is of what failed in the first."""
    (tmp_path / "test_once.py").write_text(FAILS_ONCE)
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    record = str(tmp_path / "once.json")

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        path = f"{ROOT / 'tests'}:{ROOT}"
        command = [sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures", "all", str(tmp_path)]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, **variables}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    first = run(FAILED_ONCE=record)
    assert first.returncode == 1
    second = run(FAILED_BEFORE=record)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "unsteady: test_once.py::test_fails_once" in second.stdout
    assert "the first time" in second.stdout
    assert "1 passed" in second.stdout.splitlines()[-1]
