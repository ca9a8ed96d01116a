"""Every reason why a connection is on kernel TCP has one line of advice, which the documents show too."""

from pathlib import Path

import attrs
import pytest

from fastsock import path_events
from fastsock.advice import ADVICE, Peer, advice_for, refused_by
from fastsock.path_events import Reason

ROOT = Path(__file__).parents[2]
KNOWN = {*path_events.REASONS, path_events.DISABLED, path_events.FOREIGN}


def test_no_reason_lacks_advice_and_no_advice_lacks_its_reason():
    assert set(ADVICE) == KNOWN


@pytest.mark.parametrize("reason", sorted(KNOWN))
def test_advice_is_one_line_that_says_something(reason):
    text = advice_for(reason)
    assert 20 < len(text) < 200
    assert text.endswith(".")
    assert text[0].isupper() or text.startswith(("ports_*", "enabled"))
    assert "leave" not in text or "nothing to do" in text  # a library's code is not the reader's
    assert "\n" not in text


def test_the_documents_have_the_same_table():
    lines = (ROOT / "docs/reasons.md").read_text().split("## Events")[0].splitlines()
    _, _, *rows = (tuple(line.strip("|").split("|")) for line in lines if line.startswith("| "))
    shown = {reason.strip(): (end.strip(), text.strip()) for reason, end, text in rows}
    assert shown == {reason: (refused_by(reason), text) for reason, text in ADVICE.items()}


def test_no_reason_is_written_anywhere_else():
    """One home: a text that is spelled again would miss its advice."""
    for path in (ROOT / "fastsock").rglob("*.p*"):
        if path.suffix in (".py", ".pyx") and path.name not in ("path_events.py", "advice.py"):
            for reason in KNOWN:
                assert f'"{reason}"' not in path.read_text(), f"{path.name}: {reason}"


REDIS = Peer(pid=7, command="redis-server *:6379", python=False, fastsock=False)
PLAIN = Peer(pid=8, command="python server.py", python=True, fastsock=False)
OURS = Peer(pid=9, command="gunicorn app:app", python=True, fastsock=True)


@pytest.mark.parametrize("reason", sorted(KNOWN))
def test_a_program_in_c_without_fastsock_is_named_first(reason):
    """A reason of this end does not matter while the other end has no fastsock."""
    text = advice_for(reason, REDIS)
    assert text.startswith("The other end, redis-server *:6379 (pid 7), runs without fastsock.")


@pytest.mark.parametrize("reason", sorted(KNOWN))
def test_a_python_program_without_fastsock_is_named_where_that_helps(reason):
    text = advice_for(reason, PLAIN)
    if ADVICE[reason].startswith("Nothing to do") and reason != Reason.UNPAID:
        assert text == ADVICE[reason]
    else:
        assert "python server.py (pid 8), under `fastsock run`" in text


@pytest.mark.parametrize(
    ("reason", "other", "says"),
    [
        (Reason.PEER, Reason.OPTION, "(pid 9), refused: unsupported socket option. For that end: The socket has"),
        (Reason.UNPAID, Reason.EXCLUDED, "(pid 9), refused: address or port excluded. For that end: ports_*"),
        (Reason.SEEKING, Reason.DETACHED, "(pid 9), refused: descriptor detached. For that end: Nothing to do"),
        (Reason.PEER, "", "gunicorn app:app (pid 9), has fastsock but did not answer"),
        (Reason.PEER, Reason.PEER, "gunicorn app:app (pid 9), has fastsock but did not answer"),
        (Reason.DETACHED, Reason.DETACHED, "Nothing to do: the connection became"),
        (Reason.SEEKING, "", "The connection was still looking"),
    ],
)
def test_the_end_that_refused_gets_the_advice(reason, other, says):
    assert says in advice_for(reason, attrs.evolve(OURS, reason=other))


def test_the_user_of_the_other_end_is_named_where_trust_may_be_missing():
    for peer in (None, OURS):
        for reason in (Reason.PEER, Reason.SEEKING, Reason.UNTRUSTED):
            assert "FASTSOCK_TRUST=user,www-data here" in advice_for(reason, peer, "www-data")
    assert "TRUST" not in advice_for(Reason.PEER, REDIS, "www-data")
    assert "TRUST" not in advice_for(Reason.FORKED, OURS, "www-data")


def test_a_program_in_another_network_namespace_is_not_said_to_be_on_another_host():
    text = advice_for(Reason.REMOTE, attrs.evolve(OURS, elsewhere=True))
    assert "on this host, in another network namespace" in text


def test_an_unknown_reason_gets_advice_too():
    assert "version" in advice_for("of a later version")
