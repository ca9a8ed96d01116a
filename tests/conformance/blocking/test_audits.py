"""Audit hooks hear of a call on the ring what they hear of it on TCP."""

import socket
import sys
from typing import Any

import pytest
from harness.pairs import Pair, read_exactly

heard: list[Any] | None = None


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    if heard is not None and event.startswith("socket."):
        heard.append((event, *arguments))


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    """There is no way to take it out again."""
    sys.addaudithook(hear)


def test_sends_are_heard_of(pair: Pair) -> None:
    global heard
    near, far = pair
    address = far.getsockname()
    calls = {
        "sendmsg": lambda: near.sendmsg([b"a"]),
        "sendmsg with no rights": lambda: near.sendmsg([b"b"], []),
        "sendto": lambda: near.sendto(b"c", address),
        "sendto with flags": lambda: near.sendto(b"d", socket.MSG_NOSIGNAL, address),
        "send": lambda: near.send(b"e"),
    }
    told = {}
    for name, call in calls.items():
        heard = []
        call()
        told[name], heard = heard, None
    assert told == {
        "sendmsg": [("socket.sendmsg", near, None)],
        "sendmsg with no rights": [("socket.sendmsg", near, None)],
        "sendto": [("socket.sendto", near, address)],
        "sendto with flags": [("socket.sendto", near, address)],
        "send": [],
    }
    assert read_exactly(far, 5) == b"abcde"
