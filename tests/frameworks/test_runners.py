"""However a program makes its loop, and whenever it is patched: the loop's class stays what the program asked for, and
connections move."""

from __future__ import annotations

import pytest

import fastsock
from frameworks.harness import APPS, run

ASYNCIO, UVLOOP, OURS = "asyncio.unix_events", "uvloop", "fastsock.aio.loops"
UNDER_FASTSOCK = {  # how -> the module of the loop's class
    "asyncio.run": ASYNCIO,
    "uvloop.run": UVLOOP,
    "uvloop.install": UVLOOP,
    "uvicorn on uvloop": UVLOOP,
    "uvicorn on asyncio": ASYNCIO,
    "aiohttp": ASYNCIO,
}
BY_ITSELF = {
    "patch early, asyncio": ASYNCIO,
    "patch early, uvloop": UVLOOP,
    "patch late, asyncio": ASYNCIO,
    "patch late, uvloop": UVLOOP,
    "fastsock.run": OURS,
    "fastsock.run on asyncio": OURS,
    "Runner": OURS,
    "loop factory": OURS,
    "policy": OURS,
    "policy, asyncio": OURS,
}


@pytest.mark.parametrize("how", UNDER_FASTSOCK)
def test_under_fastsock(how: str) -> None:
    assert run("fastsock", APPS / "runner.py", how) == {"loop": UNDER_FASTSOCK[how], "paths": ["ring", "ring"]}


@pytest.mark.parametrize("how", BY_ITSELF)
def test_by_itself(how: str) -> None:
    assert run("plain", APPS / "runner.py", how) == {"loop": BY_ITSELF[how], "paths": ["ring", "ring"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.14 has deprecated policies
@pytest.mark.parametrize("what", ["new_event_loop", "EventLoopPolicy"])
def test_a_loop_that_does_not_exist(what: str) -> None:
    make = getattr(fastsock, what)
    with pytest.raises(ValueError, match="loop is 'gevent', but must be 'uvloop' or 'asyncio'"):
        make("gevent")


@pytest.mark.parametrize("how", ["asyncio.run", "uvloop.run"])
def test_plain(how: str) -> None:
    """The check above can fail."""
    assert run("plain", APPS / "runner.py", how) == {"loop": UNDER_FASTSOCK[how], "paths": [None, None]}


@pytest.mark.parametrize("how", ["asyncio.run", "uvloop.run"])
def test_switched_off(how: str) -> None:
    got = run("fastsock", APPS / "runner.py", how, FASTSOCK_ENABLED="0")
    assert got == {"loop": UNDER_FASTSOCK[how], "paths": [None, None]}
