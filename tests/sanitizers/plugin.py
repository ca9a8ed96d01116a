"""For pytest under ./dev sanitize: the modules under test are the instrumented ones, and each report fails a test.

A sanitizer writes into a file of its own for each process, forked ones and programs included. Whatever is new there
after a test is that test's failure. A process that outlives its test reports later: then it is the next one's, and the
process id in the report tells. The same look (reports.py) ends a run.
"""

import os
from pathlib import Path

import pytest

from .reports import new_reports

MARKS = {"thread": b"__tsan_init", "address": b"__asan_init"}
FOLDER = Path(os.environ["SANITIZER_REPORTS"])


def pytest_configure() -> None:
    """Refuses to run on anything but the instrumented modules."""
    from fastsock._native import control, endpoint, libc_front, relay_protocol, transport

    for module in (libc_front, control, endpoint, transport, relay_protocol):
        path = Path(str(module.__file__))
        if Path.cwd() not in path.parents or MARKS[os.environ["SANITIZER"]] not in path.read_bytes():
            raise pytest.UsageError(f"{path} is not the instrumented module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what unfit.txt names; the summary tells how many those are."""
    lines = (Path(__file__).parent / "unfit.txt").read_text().splitlines()
    unfit = [line for line in lines if line and not line.startswith("#")]
    left_out = [item for item in items if any(text in item.nodeid for text in unfit)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    found = new_reports(FOLDER)
    if found:
        pytest.fail(f"the sanitizer reports:\n{found}", pytrace=False)
