"""What a stranger reads about the project: its metadata, and the refusal of an interpreter that it does not run on."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from harness.processes import ended
from tiers import PARTS

import fastsock

ROOT = Path(__file__).parents[2]
CITATION = ROOT / "CITATION.cff"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FREE_THREADED = "fastsock does not support the free-threaded build of Python yet"


def test_metadata_says_where_to_look():
    section = (ROOT / "pyproject.toml").read_text().split("[project.urls]\n")[1].split("\n\n")[0]
    urls = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', section, re.MULTILINE))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}


def test_one_version_everywhere():
    pyproject = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (.*)$", CITATION.read_text(), re.MULTILINE)
    assert pyproject
    assert citation
    assert pyproject[1] == citation[1] == fastsock.__version__ == importlib.metadata.version("fastsock")


def test_the_first_release_of_the_changelog_is_this_one():
    releases = re.findall(r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == fastsock.__version__


def test_the_documents_have_the_version_of_the_protocol():
    number = re.search(r"^#define FS_VERSION (\d+)$", (ROOT / "core/wire/version.h").read_text(), re.MULTILINE)
    assert number
    for page, words in {"versions.md": "has a version of its own, {} in", "protocol.md": "Version {}."}.items():
        assert words.format(number[1]) in (ROOT / "docs" / page).read_text(), page


def test_the_citation_names_the_papers():
    titles = re.findall(r'^    title: "(.*)"$', CITATION.read_text(), re.MULTILINE)
    assert len(titles) == 5
    for word in ("SOVIA", "Data Intensive", "Gigabit Ethernet", "GRIM", "WSDLite"):
        assert any(word in title for title in titles), word


def test_the_files_that_others_look_for_are_there():
    files = {"SECURITY.md": "How to report", "CONTRIBUTING.md": "./dev test", "CITATION.cff": "cff-version"}
    for name, word in files.items():
        assert word in (ROOT / name).read_text(), name


def refused(code: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in an interpreter that takes itself for a free-threaded build."""
    return ended([sys.executable, "-c", f"import sys; sys.abiflags = 't'\n{code}"], None)


def test_a_free_threaded_build_is_refused_at_the_import():
    done = refused("import fastsock")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {FREE_THREADED}")


def test_a_free_threaded_build_is_refused_when_it_builds():
    done = refused("import runpy; runpy.run_path('setup.py')")
    assert done.returncode == 1
    assert done.stderr.startswith(FREE_THREADED)
    assert len(done.stderr.splitlines()) == 1


def test_the_workflow_calls_commands_that_there_are():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    called = re.findall(r"- run: (?:\./)?(\S+)(?: (\w+))?", workflow)
    ours = re.search(r"^exec \./dev (\w+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert ours
    assert {("dev", ours[1]), ("dev", "docs")} <= set(called)
    usage = (ROOT / "dev").read_text()
    for command, word in called:
        assert command in ("sudo", "test") or (ROOT / command).is_file(), command
        assert command != "dev" or f"\n    {word}) " in usage, word


def test_the_workflow_installs_what_dev_does_not_where_nobody_is_root():
    installed = re.search(r"apt-get install (.*)$", (ROOT / ".github/workflows/ci.yml").read_text(), re.MULTILINE)
    assert installed
    assert {tool.partition(":")[0] for part in PARTS.values() for tool in part.tools} <= set(installed[1].split())


def named(where: str, text: str) -> set[str]:
    """The names behind `where.` in the expressions of a workflow's text."""
    expressions = " ".join(re.findall(r"\$\{\{(.*?)\}\}", text))
    return set(re.findall(rf"\b{where}\.(\w+)", expressions))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one_that_can_run(path: Path):
    workflow = yaml.safe_load(path.read_text())
    jobs = workflow["jobs"]
    assert workflow.keys() == {"name", True, "permissions", "jobs"}  # YAML reads the key `on` as true
    assert workflow[True].keys() <= {"push", "pull_request", "schedule", "workflow_dispatch"}
    for name, job in jobs.items():
        needed = {"runs-on", "timeout-minutes", "steps"}
        assert (
            needed <= job.keys() <= {*needed, "strategy", "if", "needs", "permissions", "environment", "container"}
        ), name
        assert set(job.get("needs", [])) <= jobs.keys() - {name}
        matrix = job.get("strategy", {}).get("matrix", {})
        for row in matrix.get("include", [matrix]):
            assert named("matrix", str(job)) == row.keys(), name
        for step in job["steps"]:
            assert len(step.keys() & {"uses", "run"}) == 1, step
            assert step.keys() <= {"uses", "run", "with"}, step
            assert re.fullmatch(r"[\w-]+/[\w-]+@\w+(/\w+)?", step.get("uses", "a/b@v1")), step


def test_what_is_not_there_when_it_is_needed_is_no_workflow():
    """Each job gets by name what another one left, and a tag publishes only what was tested."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    steps = {
        name: {step.get("uses", step.get("run")).partition("@")[0]: step for step in job["steps"]}
        for name, job in jobs.items()
    }
    assert set(jobs["release"]["needs"]) == {"test", "docs", "wheels"}
    left = steps["wheels"]["actions/upload-artifact"]["with"]
    got = steps["release"]["actions/download-artifact"]["with"]
    assert left["name"].startswith(got["pattern"].rstrip("*"))
    assert left["path"] == "dist/*"
    assert steps["docs"]["actions/upload-pages-artifact"]["with"]["path"] == "build/site"
    assert jobs["site"]["needs"] == ["docs"]


def test_every_python_of_the_classifiers_is_tested_and_gets_a_wheel():
    """`./dev wheel all` takes its versions from the classifiers."""
    versions = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert len(versions) > 3
    assert jobs["test"]["strategy"]["matrix"]["python"] == versions
    assert {"run": "./dev wheel --twice all"} in jobs["wheels"]["steps"]
    script = (ROOT / "tests/wheels/run").read_text()
    shown = ended(
        ["sed", "-n", re.search(r"sed -n '([^']*)' \"\$root/pyproject.toml", script)[1], ROOT / "pyproject.toml"]
    )
    assert shown.stdout.split() == versions
