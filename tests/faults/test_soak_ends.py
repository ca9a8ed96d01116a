"""Chaos that is stopped leaves nothing behind. It stops processes, and those would stay for ever."""

import os
import signal
import sys
from pathlib import Path

import pytest
from harness.pairs import SECONDS, until
from harness.processes import Server, ended, marked

MARK = "CHAOS_TEST"

pytestmark = pytest.mark.timeout(12 * SECONDS)


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes these containers")


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(["soak", "--seconds", "60"], id="chaos"),
        pytest.param(["soak", "--seconds", "60", "--containers"], id="containers", marks=ONLY_ROOT),
        pytest.param(["soak.soak", "--hours", "1"], id="soak"),
    ],
)
def test_chaos_that_is_stopped_leaves_no_process(what: list[str], tmp_path: Path) -> None:
    value = f"{what[0]}-{os.getpid()}"
    command = [sys.executable, "-m", f"tests.{what[0]}", *what[1:], "--seed", "1", "--out", str(tmp_path / "out")]
    with Server(command, **{MARK: value}) as running:
        try:
            running.until(lambda: len(marked(MARK, value)) >= 8, "workers are there")
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(4 * SECONDS) == 128 + signal.SIGTERM
            until(lambda: marked(MARK, value) == [], "all have ended")
        finally:
            for pid in marked(MARK, value):
                os.kill(pid, signal.SIGKILL)


def test_an_end_is_said_before_its_process_may_go() -> None:
    """A process goes when none of its connections is left (``wait_for_talks``): what is unsaid then is lost."""
    program = """
from tests.soak import watch
from tests.soak.plan import Features, Plan
from tests.soak.stream import Talk
talk = Talk(Plan(1, ("sockets", "sockets"), Features()), "client", {})
watch.talks.add(talk)
counted = []
watch.say = lambda what, **values: counted.append((what, talk in watch.talks))
watch.report(talk, "done")
assert (counted, watch.talks) == ([("end", True)], set()), counted
"""
    ended([sys.executable, "-c", program])
