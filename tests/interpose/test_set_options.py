"""An option does what it does on kernel TCP, whoever sets it and whenever: the kernel is asked for what may be set."""

from __future__ import annotations

import pytest
from harness.processes import FASTSOCK, PLAIN, ROOT, answer_of

PROGRAM = ROOT / "tests/interpose/set_options.py"


@pytest.mark.parametrize("option", ["SO_LINGER", "SO_RCVTIMEO", "SO_SNDBUF", "SO_RCVLOWAT"])
def test_an_option_does_what_it_does_on_kernel_tcp(option: str) -> None:
    told = answer_of(FASTSOCK, PROGRAM, option, 10, FASTSOCK_MOVE_AFTER="4")
    expected = answer_of(PLAIN, PROGRAM, option, 0)
    assert {when: does for when, (_, does) in told.items()} == {when: does for when, (_, does) in expected.items()}
    stays = () if option != "SO_RCVLOWAT" else {*told} - {"on the way"}  # that is the kernel's alone
    assert {when: moved for when, (moved, _) in told.items()} == {when: when not in stays for when in told}
