"""usage: pytest_client.py PORT      a suite of tests against a live server, over and over; an operation is a test"""

import os
import sys
from pathlib import Path

import clock
import pytest

TESTS = 100
SUITE = f"""
import os
import pytest
import requests

@pytest.fixture(scope="session")
def session():
    with requests.Session() as session:
        session.trust_env = False
        yield session

@pytest.mark.parametrize("number", range({TESTS}))
def test_answers(session, number):
    assert len(session.get(f"http://127.0.0.1:{{os.environ['SERVED']}}/{{number}}").content) == 1024
"""

os.environ["SERVED"] = sys.argv[1]
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
Path("test_live.py").write_text(SUITE)
Path("pytest.ini").write_text("[pytest]\n")


def one() -> None:
    assert pytest.main(["-q", "-p", "no:cacheprovider", "test_live.py"]) == 0


clock.repeat(one, TESTS)
