"""Calls in progress on stream sockets of AF_UNIX end as in the kernel: some of the combinations of `blocked_calls`, of
which `./dev verify calls` has all on TCP."""

from __future__ import annotations

import pytest

from conformance.blocked_calls.combinations import CALLS, EVENTS, reachable
from conformance.blocked_calls.test_every_combination import Comparison

EACH = 37
"""One of so many; no divisor of the number of events, which come in turns."""


@pytest.mark.timeout(300)
def test_some_combinations_end_as_in_the_kernel() -> None:
    some = reachable()[::EACH]
    assert {c.event for c in some} == {*EVENTS}
    assert {c.call for c in some} >= {*CALLS} - {"both"}
    comparison = Comparison("unix", some)
    comparison.fail_if(comparison.findings())
