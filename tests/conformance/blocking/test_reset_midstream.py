"""A reset in the middle of the move: what has come of the kernel's part is read, and nothing behind the gap."""

import contextlib
from typing import Any

import pytest
from harness.pairs import KINDS, configured, described, until

from conformance.blocked_calls.ends import End, remote_end
from conformance.blocked_calls.script import Play, settle

MUCH = 3_000_000
"""Bytes: more than both kernels hold, with the buffers of `End`."""

ATTEMPTS = 12
"""Connections at most, of which three have to get into the middle of the move."""


def rest(*ends: Any) -> None:
    settle([Play("", None, near=end) for end in ends], 0.015)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["kernel", "midstream"])
def test_a_reset_that_a_send_was_told_hides_nothing_that_has_come(kind: str) -> None:
    """Both directions are full when far is killed. The rest of its part in the kernel is lost, so that all that it
    had in the ring lies behind a gap."""
    done = 0
    for _ in range(ATTEMPTS):
        with contextlib.ExitStack() as resources:
            resources.enter_context(configured(kind))
            far = remote_end("far", KINDS[kind].far_fastsock, True, MUCH)
            resources.callback(far.over)
            near = End("near", KINDS[kind].near_fastsock, True, MUCH)
            resources.callback(near.over)
            near.connect(far.listen())
            far.accept()
            near.start("sendall", None)
            rest(near, far)
            far.start("sendall", None)
            rest(near, far)
            for step in range(60):  # each takes steps towards the ring
                far.has_bytes()
                near.has_bytes()
                rest(near, far)
                if step >= 5 and (not KINDS[kind].moves or described(near.sock, "peer_consents")):
                    break
            for _ in range(8):
                far.start("recv", None)
                rest(near, far)
                far.forget("recv")
                if KINDS[kind].moves and not described(
                    near.sock, "peer_switched_at"
                ):  # far's sender needs room to look
                    near.start("recv", None)
                    rest(near, far)
                    near.forget("recv")
            if KINDS[kind].moves and not described(near.sock, "peer_switched_at"):
                continue  # on a busy machine they may not have met in time, and then there is no gap
            far.killed()
            until(lambda near=near: near.calls() == {"sendall": "ECONNRESET"}, "the reset is told")
            size, what = near.drain()
            assert (size > 0, what) == (True, "eof")
            done += 1
            if done == 3:
                return
    pytest.fail("the ends hardly ever met")
